// dense.h: the arithmetic of sealing a block of rows: small f32 matrices of reference queries against rows.
//
// Shapes in brackets; matrices lie row after row without gaps; `n` (rows of the block) and `dim` are
// multiples of 16: the caller pads with zero rows and columns. Every result is summed in one order, the same
// for every instruction set.
// Ownership: none.
// Thread rules: pure functions on the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvtide {

struct DenseRow {
  const char* isa;
  // out[m][n] = scale * q[m][dim] . k[n][dim]
  void (*dots)(const float* q, std::int64_t m, const float* k, std::int64_t n, std::int64_t dim, float scale,
               float* out) noexcept;
  // out[m][dim] = p[m][n] * v[n][dim], rows of v in ascending order; n may be any number
  void (*mix)(const float* p, std::int64_t m, std::int64_t n, const float* v, std::int64_t dim,
              float* out) noexcept;
  // x[n] becomes e^(x - L) with L = ln sum e^x, which is returned; minus infinity where nothing has mass.
  float (*soften)(float* x, std::int64_t n) noexcept;
  // shares[n] = masses[n] * times[n] over the sum of all, which is returned; where they have no mass, the smallest normal
  // number stands for it.
  float (*weigh)(const float* masses, const float* times, std::int64_t n, float* shares) noexcept;
  // sum[n] += (weight * x[n])^2
  void (*add_squares)(const float* x, float weight, std::int64_t n, float* sum) noexcept;
  // sum[n] += (weight * p[n])^2 * max(0, vv[n] + oo - 2 vo[n]): what is lost with a value v where o came out
  void (*add_losses)(const float* p, float weight, const float* vv, float oo, const float* vo, std::int64_t n,
                     float* sum) noexcept;
  // y[n] = the numbers whose f16 bits are x[n]
  void (*widen)(const std::uint16_t* x, std::int64_t n, float* y) noexcept;
  // Rows of blocks of 32 elements, `n` a multiple of 32, with the bits of their codecs (codec.h).
  void (*numbers_of_q8_0)(const std::byte* blocks, std::int64_t n, float* out) noexcept;
  void (*numbers_of_q4_0)(const std::byte* blocks, std::int64_t n, float* out) noexcept;
  void (*round_to_q4_0)(const float* x, std::int64_t n, std::byte* blocks) noexcept;
  // h[n][n], symmetric and positive, is (I + U) D (I + U)^T with U above the diagonal: minus_u[n][n] = -U. Uses h up.
  void (*factor)(float* h, std::int64_t n, float* minus_u) noexcept;
  // Sixteen rows side by side, n a multiple of 32: codes[n][16] = x[n][16] as multiples of scales[n / 32][16] from -8 to 7,
  // element after element; what is missing of one goes by -U to those behind it. inverses: of the scales.
  void (*round_in_turn)(const float* x, std::int64_t n, const float* scales, const float* inverses,
                        const float* minus_u, float* codes) noexcept;
};

extern const DenseRow kDenseScalar;
extern const DenseRow kDenseAvx2;
extern const DenseRow kDenseAvx512;
extern const DenseRow kDenseNeon;

}  // namespace kvtide
