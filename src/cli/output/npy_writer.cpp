#include "cli/output/npy_writer.h"

#include <bit>
#include <cassert>

#include "base/text.h"

namespace kvtide {

static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");

std::string npy_header(std::string_view descr, const std::vector<std::int64_t>& shape) {
  std::string tuple;
  for (const std::int64_t extent : shape) tuple += cat(extent, ",");
  std::string text = cat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", tuple, "), }");
  // Magic, version and length take 10 bytes; the data starts at a multiple of 64, behind a line feed.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string header("\x93NUMPY\1\0", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

NpyWriter::NpyWriter(const std::string& path, const std::vector<std::int64_t>& shape) : file_(path) {
  for (const std::int64_t extent : shape) missing_ *= extent;
  file_.write(npy_header("<f4", shape));
}

void NpyWriter::add(std::span<const float> values) {
  missing_ -= static_cast<std::int64_t>(values.size());
  file_.write({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

void NpyWriter::commit() {
  assert(missing_ == 0);
  file_.commit();
}

}  // namespace kvtide
