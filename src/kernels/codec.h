// codec.h: rows of stored weights (or of cached keys and values) to floats and back.
//
// decode_row gives the bits that the format's own arithmetic gives: every product and sum in f32, in the
// order of ggml's reference, one rounding each. The goldens of tests/goldens/codec compare bit for bit.
// Ownership: none. Thread rules: pure functions, no allocation, no alignment needed of `blocks`.
// Units: `elements` counts floats and is a multiple of the type's block (tensor/dtype.h); 0 is allowed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kvtide {

using DecodeRow = void (*)(const std::byte* blocks, std::int64_t elements, float* out) noexcept;
using ScalesFinite = bool (*)(const std::byte* blocks, std::int64_t elements) noexcept;
using EncodeRow = void (*)(const float* row, std::int64_t elements, std::byte* blocks) noexcept;

struct Codec {
  DType dtype;
  DecodeRow decode;
  // No NaN and no infinity among the scales of the blocks (of a plain float type: among the elements).
  // Decoded values are then finite, too: no product of a finite f16 scale leaves f32.
  ScalesFinite scales_finite;
  // nullptr where only reading is supported. Rounds to nearest: f16 and the integers of q4_0 to even, those
  // of q8_0 away from zero; q4_0 tries a few scales and takes the one with the smallest squared error. What
  // f16 cannot hold becomes infinite; a block with a NaN or an infinity gets a NaN scale. So scales_finite
  // finds whatever went wrong.
  EncodeRow encode;
};

// The row of a const table.
const Codec& codec(DType dtype) noexcept;

inline void decode_row(DType dtype, const std::byte* blocks, std::int64_t elements, float* out) noexcept {
  codec(dtype).decode(blocks, elements, out);
}

inline bool scales_finite(DType dtype, const std::byte* blocks, std::int64_t elements) noexcept {
  return codec(dtype).scales_finite(blocks, elements);
}

// `dtype` must have an encoder: f32, f16, q8_0, q4_0.
inline void encode_row(DType dtype, const float* row, std::int64_t elements, std::byte* blocks) noexcept {
  codec(dtype).encode(row, elements, blocks);
}

}  // namespace kvtide
