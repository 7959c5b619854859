// matmul_kernel.h: y[m][n] = sum over k of x[m][k] * w[n][k], one row of function pointers per instruction
// set.
//
// Two families:
//   dot     weights in panels (tensor/panel.h), activations in 8 bits (quant_rows.h): exact integer dot products
//   decode  panels to f32, then gemm with f32 activations: the exact mode, and types without a panel form
// Order of the arithmetic, the same for every instruction set and any number of rows m (idea 4): one f32
// accumulator per output, block after block (dot) or element after element (gemm) in k, each step one fused
// multiply-add:
//   q4_0 q5_0 q8_0  acc = fma(float(sum q_w q_x), d_w * d_x, acc), q_w with its offset taken off
//   q4_1            ... then acc = fma(m_w, d_sum_x, acc)
//   q4_k q5_k       acc = fma(float(sum) * (d_w * scale), d_x, acc); acc = fma(-(dmin * min), d_sum_x, acc)
//   q6_k            acc = fma(fma(float(sum1), d_w * scale1, float(sum0) * (d_w * scale0)), d_x, acc)
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant_rows.h"
#include "tensor/panel.h"

namespace kvtide {

// Where a panel's results go: y[row * stride + 0 .. columns), columns <= 16.
struct PanelOut {
  float* y;
  std::int64_t stride;  // floats
  int columns;
};

using DotFn = void (*)(const std::byte* panel, const QuantRows& x, const PanelOut& out) noexcept;
// Elements [k0, k1) of a panel as f32: out[(k - k0) * 16 + row]. k0 and k1 are multiples of the block.
using DecodeFn = void (*)(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept;

struct MatmulRow {
  const char* isa;
  DotFn q4_0, q4_1, q5_0, q8_0, q4_k, q5_k, q6_k;
  DecodeFn decode_f16, decode_bf16;  // a panel of f32 is multiplied as it lies
  DecodeFn decode_q4_0, decode_q4_1, decode_q5_0, decode_q8_0, decode_q4_k, decode_q5_k, decode_q6_k;
  // acc[rows][16] += x[rows][0 .. k) * w[k][16]; x rows are x_stride floats apart, acc rows acc_stride.
  void (*gemm)(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, std::int64_t rows,
               float* acc, std::int64_t acc_stride) noexcept;
};

extern const MatmulRow kMatmulScalar;
extern const MatmulRow kMatmulAvx2;
extern const MatmulRow kMatmulAvxVnni;
extern const MatmulRow kMatmulAvx512;
extern const MatmulRow kMatmulAmx;
extern const MatmulRow kMatmulNeon;
extern const MatmulRow kMatmulDotprod;
extern const MatmulRow kMatmulI8mm;

}  // namespace kvtide
