// packed_file.cpp: libFuzzer target for the table of a file of packed weights.
//
// An input is a table of JSON, a zero byte and the bytes of matrices. It is sealed with an end that fits, since
// random sums would never be right; then it is opened as it stands, too. What is accepted has to lie inside the
// file, on pages of its own and side by side.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/checksum.h"
#include "formats/packed_file.h"
#include "formats/packed_format.h"
#include "fuzz/fuzzing.h"
#include "kvtide/error.h"
#include "tests/formats/packed_bytes.h"

using kvtide::fuzzing::require;

namespace {

using namespace kvtide;
using namespace kvtide::packed_format;

void open(std::span<const std::byte> bytes) {
  const testing::AlignedBytes aligned(bytes);
  try {
    const PackedFile file = PackedFile::from_bytes(aligned.get(), "input");
    std::uint64_t end = kFront;
    for (std::size_t i = 0; i < file.matrices().size(); ++i) {
      const auto matrix = file.bytes(i);
      require(matrix.data() == aligned.get().data() + end && matrix.size() == file.matrices()[i].bytes);
      end += padded(matrix.size());
    }
    require(end < bytes.size());
    ThreadPool pool(1);
    file.verify(pool);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::bad_format || error.code() == ErrorCode::unsupported);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  open(input);
  const auto* zero = size == 0 ? nullptr : static_cast<const std::uint8_t*>(std::memchr(data, 0, size));
  const auto table = input.first(zero == nullptr ? size : static_cast<std::size_t>(zero - data));
  // The front of a file without matrices, and then as many pages as the input has bytes behind its table.
  std::vector<std::byte> file = testing::packed_bytes_of({});
  file.resize(kFront + std::min<std::size_t>(size - table.size(), 64) * kPage);
  file.insert(file.end(), table.begin(), table.end());
  End end{};
  end.table_bytes = table.size();
  end.file_bytes = file.size() + kEnd;
  end.table_sum = crc32c(table);
  end.own_sum = crc32c(std::as_bytes(std::span(&end, 1)).first(offsetof(End, own_sum)));
  std::memcpy(end.magic, kEndMagic, sizeof end.magic);
  const auto bytes = std::as_bytes(std::span(&end, 1));
  file.insert(file.end(), bytes.begin(), bytes.end());
  open(file);
  return 0;
}
