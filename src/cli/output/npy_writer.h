// npy_writer.h: an array of float32 as a NumPy file (format version 1.0, little endian, C order), row after
// row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output/output_file.h"

namespace kvtide {

// What stands in front of the elements of an array. descr: NumPy's name of their type, "<f4".
std::string npy_header(std::string_view descr, const std::vector<std::int64_t>& shape);

class NpyWriter {
 public:
  NpyWriter(const std::string& path, const std::vector<std::int64_t>& shape);
  void add(std::span<const float> values);
  // Throws Error(io). All elements of the shape must have been added.
  void commit();

 private:
  OutputFile file_;
  std::int64_t missing_ = 1;  // elements that the shape promises and nobody has added
};

}  // namespace kvtide
