// packed_writer.cpp: a file of packed weights, written front to back: the table comes last, when the sums are known.
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/json/json.h"
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
  Json matrices = Json::array();
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const PackedMatrix& matrix = matrices_[i];
    Json item = Json::object();
    item.set("name", matrix.name)
        .set("type", dtype_info(matrix.dtype).name)
        .set("first", matrix.first)
        .set("rows", matrix.rows)
        .set("columns", matrix.columns)
        .set("ordered", matrix.ordered)
        .set("bytes", matrix.bytes)
        .set("sum", sums_[i]);
    matrices.push(std::move(item));
  }
  Json json = Json::object();
  json.set("model", binding_.model)
      .set("time", binding_.time)
      .set("program", binding_.program)
      .set("layout", binding_.layout)
      .set("kernels", binding_.kernels)
      .set("matrices", std::move(matrices));
  const std::string text = json.text(JsonForm::line);
  const auto table = std::as_bytes(std::span(text));
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
