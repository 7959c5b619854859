// state_rows.h: rows with known numbers, for telling whether a state gives back what it was given.
//
// Numbers are small integers times a power of two that f32, f16 and q8_0 all hold exactly.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/text.h"
#include "tensor/dtype.h"

namespace kvtide::testing {

// The key or value of one token, layer and head: [head_dim]. `text` tells apart what was written at one
// position at different times.
inline std::vector<float> row_numbers(std::int64_t text, int layer, int head, bool key, int head_dim) {
  auto bits = static_cast<std::uint64_t>(text) * 0x9e3779b97f4a7c15u +
              static_cast<std::uint64_t>(layer * 64 + head * 2 + (key ? 1 : 0)) * 0xc2b2ae3d27d4eb4fu;
  const float step = std::bit_cast<float>(std::uint32_t{126 + static_cast<std::uint32_t>(bits >> 61)} << 23);
  std::vector<float> row(static_cast<std::size_t>(head_dim));
  for (std::size_t i = 0; i < row.size(); ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    row[i] = step * static_cast<float>(static_cast<int>((bits >> 33) % 255) - 127);
    if (i % 32 == 0) row[i] = step * 127.0f;  // the largest of a block of q8_0 makes its step a power of two
  }
  return row;
}

// What stored bytes stand for.
inline float stored_number(DType dtype, const std::byte* row, int element) {
  std::uint16_t half = 0;
  if (dtype == DType::f16) {
    std::memcpy(&half, row + 2 * element, 2);
    return f16_to_f32(half);
  }
  if (dtype == DType::q8_0) {
    const std::byte* block = row + element / 32 * 34;
    std::memcpy(&half, block, 2);
    return f16_to_f32(half) * static_cast<float>(static_cast<std::int8_t>(block[2 + element % 32]));
  }
  float value = 0.0f;
  std::memcpy(&value, row + 4 * element, 4);
  return value;
}

// "" or what is wrong with the row.
inline std::string compare_row(DType dtype, const std::byte* row, const std::vector<float>& wanted) {
  for (std::size_t d = 0; d < wanted.size(); ++d)
    if (const float got = stored_number(dtype, row, static_cast<int>(d)); got != wanted[d])
      return cat("element ", d, " is ", got, " instead of ", wanted[d]);
  return "";
}

inline std::string all_zero(const std::byte* row, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; ++i)
    if (row[i] != std::byte{0}) return cat("byte ", i, " is not zero");
  return "";
}

}  // namespace kvtide::testing
