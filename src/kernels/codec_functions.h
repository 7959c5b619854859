// codec_functions.h: the functions of one stored type, as a row of the codec table. codec.h finds the row of a type.
//
// Units: `elements` counts floats and is a multiple of the type's block.
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

}  // namespace kvtide
