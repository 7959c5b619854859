// packed_bytes.h: files of packed weights in memory, for tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/pages.h"
#include "formats/packed_file.h"

namespace kvtide::testing {

// Aligned as a mapped file is.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::span<const std::byte> bytes)
      : words_((bytes.size() + 7) / 8), size_(bytes.size()) {
    if (size_ > 0) std::memcpy(words_.data(), bytes.data(), size_);
  }
  std::span<const std::byte> get() const {
    return {reinterpret_cast<const std::byte*>(words_.data()), size_};
  }

 private:
  std::vector<std::uint64_t> words_;
  std::size_t size_;
};

inline PackedBinding sample_binding() { return {"abc", "1.2", "0.1.0", 7, "any"}; }

// Matrices of these many bytes.
inline std::vector<std::byte> packed_bytes_of(const std::vector<std::size_t>& sizes) {
  std::vector<std::byte> file;
  const auto append = [&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  const FileSink sink(append);
  PackedWriter writer(sink, sample_binding());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    PackedMatrix matrix{
        "blk." + std::to_string(i), DType::q8_0, static_cast<std::int64_t>(i), 3, 5, i % 2 == 1, sizes[i]};
    writer.begin(matrix);
    std::vector<std::byte> bytes(sizes[i], static_cast<std::byte>(i + 1));
    for (std::size_t at = 0; at < bytes.size(); at += 1000)
      writer.write(std::span(bytes).subspan(at, std::min<std::size_t>(1000, bytes.size() - at)));
  }
  writer.finish();
  return file;
}

}  // namespace kvtide::testing
