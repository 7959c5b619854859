// npy.h: one array of a NumPy file (format versions 1 and 2), checked before anything is taken from it.
//
// Little endian, C order; float16, float32, float64, int32 and int64.
// Ownership: a plain value with numbers of its own.
// Thread rules: none needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvtide {

struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<double> numbers;  // exact for every type but int64 beyond 2^53, which is refused

  std::vector<float> floats() const { return {numbers.begin(), numbers.end()}; }
};

// Throws Error(bad_format) that names `path`: no NumPy file, another element type or order, a shape that the
// bytes do not hold.
NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& path);
// Throws also not_found and io.
NpyArray read_npy(const std::string& path);

}  // namespace kvtide
