// dtype.h: element types of tensors and the size of their blocks. No maths here.
//
// Quantised types store `block_elements` consecutive elements of a row in `block_bytes` bytes; a row always
// holds whole blocks. Layouts inside a block: tensor/blocks.h. The numbers are those of the GGUF file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvtide {

enum class DType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // lower case, as on the command line: "f16", "q4_k"
  std::int64_t block_elements;
  std::int64_t block_bytes;
};

// All types that kvtide reads, in the order of their numbers.
inline constexpr DTypeInfo kDTypes[] = {
    {DType::f32, "f32", 1, 4},
    {DType::f16, "f16", 1, 2},
    {DType::q4_0, "q4_0", 32, 18},
    {DType::q4_1, "q4_1", 32, 20},
    {DType::q5_0, "q5_0", 32, 22},
    {DType::q5_1, "q5_1", 32, 24},
    {DType::q8_0, "q8_0", 32, 34},
    {DType::q2_k, "q2_k", 256, 84},
    {DType::q3_k, "q3_k", 256, 110},
    {DType::q4_k, "q4_k", 256, 144},
    {DType::q5_k, "q5_k", 256, 176},
    {DType::q6_k, "q6_k", 256, 210},
    {DType::iq2_xxs, "iq2_xxs", 256, 66},
    {DType::iq2_xs, "iq2_xs", 256, 74},
    {DType::iq3_xxs, "iq3_xxs", 256, 98},
    {DType::iq1_s, "iq1_s", 256, 50},
    {DType::iq4_nl, "iq4_nl", 32, 18},
    {DType::iq3_s, "iq3_s", 256, 110},
    {DType::iq2_s, "iq2_s", 256, 82},
    {DType::iq4_xs, "iq4_xs", 256, 136},
    {DType::iq1_m, "iq1_m", 256, 56},
    {DType::bf16, "bf16", 1, 2},
    {DType::tq1_0, "tq1_0", 256, 54},
    {DType::tq2_0, "tq2_0", 256, 66},
    {DType::mxfp4, "mxfp4", 32, 17},
};

inline std::optional<DType> dtype_from_number(std::uint32_t number) {
  for (const auto& info : kDTypes)
    if (static_cast<std::uint32_t>(info.dtype) == number) return info.dtype;
  return std::nullopt;
}

inline std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& info : kDTypes)
    if (info.name == name) return info.dtype;
  return std::nullopt;
}

inline const DTypeInfo& dtype_info(DType dtype) {
  for (const auto& info : kDTypes)
    if (info.dtype == dtype) return info;
  return kDTypes[0];  // unreachable: a DType is one of the table
}

// Bytes of `elements` elements, a multiple of the block size. No overflow for elements < 2^55.
inline std::int64_t dtype_bytes(DType dtype, std::int64_t elements) {
  const auto& info = dtype_info(dtype);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace kvtide
