// packed_writer.cpp: a file of packed weights, written front to back: the table comes last, when the sums are known.
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/json/json_line.h"
#include "formats/packed_file.h"
#include "formats/packed_format.h"

namespace kvtide {

using namespace packed_format;

namespace {

constexpr std::byte kZeros[kPage] = {};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

PackedWriter::PackedWriter(const FileSink& sink, PackedBinding binding)
    : sink_(sink), binding_(std::move(binding)) {
  Front front{};
  std::memcpy(front.magic, kMagic, sizeof front.magic);
  front.version = kVersion;
  put(bytes_of(front));
  put(std::span(kZeros).first(kFront - sizeof front));
}

void PackedWriter::put(std::span<const std::byte> bytes) {
  sink_(bytes);
  written_ += bytes.size();
}

void PackedWriter::begin(const PackedMatrix& matrix) {
  close_matrix();
  matrices_.push_back(matrix);
  open_ = true;
}

void PackedWriter::write(std::span<const std::byte> bytes) {
  sum_ = crc32c(bytes, sum_);
  put(bytes);
}

// The sum covers the zeros behind a matrix, too, so that there is no byte that may change unnoticed.
void PackedWriter::close_matrix() {
  if (open_) write(std::span(kZeros).first(padded(written_) - written_));
  if (open_) sums_.push_back(sum_);
  sum_ = 0;
  open_ = false;
}

void PackedWriter::finish() {
  close_matrix();
  JsonLine json;
  json.object([&] {
    json.member("model", binding_.model);
    json.member("time", binding_.time);
    json.member("program", binding_.program);
    json.member("layout", binding_.layout);
    json.member("kernels", binding_.kernels);
    json.key("matrices");
    json.list([&] {
      for (std::size_t i = 0; i < matrices_.size(); ++i)
        json.object([&] {
          const PackedMatrix& matrix = matrices_[i];
          json.member("name", matrix.name);
          json.member("type", dtype_info(matrix.dtype).name);
          json.member("first", matrix.first);
          json.member("rows", matrix.rows);
          json.member("columns", matrix.columns);
          json.member("ordered", matrix.ordered);
          json.member("bytes", matrix.bytes);
          json.member("sum", sums_[i]);
        });
    });
  });
  const auto table = std::as_bytes(std::span(json.text()));
  put(table);
  End end{};
  end.table_bytes = table.size();
  end.file_bytes = written_ + kEnd;
  end.table_sum = crc32c(table);
  end.own_sum = crc32c(bytes_of(end).first(offsetof(End, own_sum)));
  std::memcpy(end.magic, kEndMagic, sizeof end.magic);
  put(bytes_of(end));
}

}  // namespace kvtide
