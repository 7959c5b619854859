// stored_row.h: rows of the past as they are stored, and as floats: four bits hold the Hadamard transform of a row,
// and of a key what is left of it without a mean.
//
// Thread rules: pure.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"
#include "tensor/dtype.h"

namespace kvtide {

// row: [dim], which is changed. mean: [dim], transformed, or empty. out: the bytes of a row of that type.
void store_row(const Kernels& kernels, DType type, std::span<float> row, std::span<const float> mean,
               std::byte* out) noexcept;
// The other way round.
void read_row(const Kernels& kernels, DType type, const std::byte* stored, std::span<const float> mean,
              std::span<float> row) noexcept;

}  // namespace kvtide
