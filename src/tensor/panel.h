// panel.h: weights regrouped for the processor: 16 rows of a matrix side by side. Structs only.
//
// A panel holds rows 16 p .. 16 p + 15 of a weight matrix (missing rows are zeros) as consecutive blocks
// along k. One block covers 32 k (or 256 for the k-quants). Quants lie in groups of 64 bytes: byte 4 r + c of
// group j is row r, element k = 4 j + c of the block: what a 4-byte dot product instruction wants. 4-bit
// quants: the low nibbles of raw group i (0..3) are group i, the high nibbles are group i + 4. Sizes are
// those of the GGUF blocks, regrouped without loss (the k-quants spend 3% more: their 6-bit scales become
// bytes).
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/blocks.h"
#include "tensor/dtype.h"

namespace kvtide {

inline constexpr int kPanelRows = 16;

struct PanelQ4_0 {
  Half d[16];
  std::uint8_t q[4][64];  // value = d * (q - 8)
};
struct PanelQ4_1 {
  Half d[16], m[16];
  std::uint8_t q[4][64];  // value = d * q + m
};
struct PanelQ5_0 {
  Half d[16];
  std::uint8_t high[8][8];  // bit b of group j: fifth bit of byte b
  std::uint8_t q[4][64];    // value = d * (q - 16)
};
struct PanelQ8_0 {
  Half d[16];
  std::int8_t q[8][64];  // value = d * q
};
struct PanelQ4K {  // 256 k
  Half d[16], dmin[16];
  struct Sub {  // 32 k: value = (d * scale) * q - dmin * min
    std::uint8_t scale[16], min[16];
    std::uint8_t q[4][64];
  } sub[8];
};
struct PanelQ5K {  // 256 k
  Half d[16], dmin[16];
  struct Sub {  // 32 k: value = (d * scale) * q - dmin * min
    std::uint8_t scale[16], min[16];
    std::uint8_t high[8][8];  // as in PanelQ5_0
    std::uint8_t q[4][64];
  } sub[8];
};
struct PanelQ6K {  // 256 k
  Half d[16];
  struct Sub {  // 32 k: value = (d * scale[k / 16]) * (q - 32)
    std::int8_t scale[2][16];
    std::uint8_t high[2][64];  // bits 2 i .. 2 i + 1 of high[h]: bits 4..5 of group 4 h + i
    std::uint8_t q[4][64];
  } sub[8];
};

// A panel of a plain float type is its elements: 16 of one k, then 16 of the next.

struct PanelShape {
  std::int64_t block_elements;  // along k
  std::int64_t block_bytes;     // of 16 rows
};

// nullopt: this type has no panel form and is decoded by tile instead.
inline std::optional<PanelShape> panel_shape(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return PanelShape{1, 4 * kPanelRows};
    case DType::f16:
    case DType::bf16:
      return PanelShape{1, 2 * kPanelRows};
    case DType::q4_0:
      return PanelShape{32, sizeof(PanelQ4_0)};
    case DType::q4_1:
      return PanelShape{32, sizeof(PanelQ4_1)};
    case DType::q5_0:
      return PanelShape{32, sizeof(PanelQ5_0)};
    case DType::q8_0:
      return PanelShape{32, sizeof(PanelQ8_0)};
    case DType::q4_k:
      return PanelShape{256, sizeof(PanelQ4K)};
    case DType::q5_k:
      return PanelShape{256, sizeof(PanelQ5K)};
    case DType::q6_k:
      return PanelShape{256, sizeof(PanelQ6K)};
    default:
      return std::nullopt;
  }
}

// Whether a product with 8-bit activations multiplies integers; the others are multiplied as f32.
inline bool has_integer_panel(DType dtype) {
  const auto shape = panel_shape(dtype);
  return shape && shape->block_elements > 1;
}

}  // namespace kvtide
