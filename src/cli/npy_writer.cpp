#include "cli/npy_writer.h"

#include <bit>
#include <cassert>

#include "base/text.h"

namespace kvtide {

static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");

NpyWriter::NpyWriter(const std::string& path, const std::vector<std::int64_t>& shape) : file_(path) {
  std::string tuple;
  for (const std::int64_t extent : shape) {
    tuple += cat(extent, ",");
    missing_ *= extent;
  }
  std::string header = cat("{'descr': '<f4', 'fortran_order': False, 'shape': (", tuple, "), }");
  // Magic, version and length take 10 bytes; the data starts at a multiple of 64, behind a line feed.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const char start[] = {'\x93',
                        'N',
                        'U',
                        'M',
                        'P',
                        'Y',
                        1,
                        0,
                        static_cast<char>(header.size() & 0xff),
                        static_cast<char>(header.size() >> 8)};
  file_.write({start, sizeof start});
  file_.write(header);
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
