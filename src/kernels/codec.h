// codec.h: rows of stored weights (or of cached keys and values) to floats and back.
//
// decode_row gives the bits that the format's own arithmetic gives: every product and sum in f32, in the
// order of ggml's reference, one rounding each. The goldens of tests/goldens/codec compare bit for bit.
// Ownership: none.
// Thread rules: pure functions, no allocation, no alignment needed of `blocks`.
// Units: `elements` counts floats and is a multiple of the type's block (tensor/dtype.h); 0 is allowed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/codec_functions.h"

namespace kvtide {

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
