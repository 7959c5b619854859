// hadamard.h: the orthonormal Walsh-Hadamard transform of one row.
//
// It spreads a few large elements over all of them, which is what four bits with one scale per 32 elements
// can hold. It is its own inverse and keeps dot products, so a query transformed once may meet stored keys as
// they lie, and what stored values add up to is transformed back once.
// Invariants: sums in a fixed order, the same bits on every processor.
// Thread rules: pure.
#pragma once

#include <cstdint>

namespace kvtide {

// In place, over consecutive parts of the largest power of two that divides n: 64 for 64, 32 for 96.
void hadamard(float* x, std::int64_t n) noexcept;

}  // namespace kvtide
