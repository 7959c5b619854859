// matmul.avx512.cpp: matrix products with AVX-512 VNNI. A lane of a register is a row of the panel, so that
// an output is one lane of one accumulator from the first block to the last, whatever the number of rows in
// the call.
//
// VNNI multiplies unsigned weights by signed activations: quants stay with their offset, and the offset times
// the sum of the activations is taken off in integers, where it is exact.
#include <immintrin.h>

#include "kernels/matmul_kernel.h"

namespace kvtide {
namespace {

inline __m512 half16(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline __m512i bytes64(const void* p) { return _mm512_loadu_si512(p); }
inline __m512i dot(__m512i sum, __m512i w, const std::int8_t* x) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, x, 4);
  return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}
inline __m512i low(__m512i raw) { return _mm512_and_si512(raw, _mm512_set1_epi8(15)); }
inline __m512i high(__m512i raw) { return _mm512_and_si512(_mm512_srli_epi16(raw, 4), _mm512_set1_epi8(15)); }

// Activations of one block of 32 for up to eight rows, as the block steps below want them.
struct XView {
  const std::int8_t* q;
  const float* d;
  const float* d_sum;
  const std::int32_t* sum16;
  std::int64_t k, blocks;

  const std::int8_t* quants(int m, std::int64_t b) const { return q + m * k + b * 32; }
  __m512 step(int m, std::int64_t b) const { return _mm512_set1_ps(d[m * blocks + b]); }
  __m512 mass(int m, std::int64_t b) const { return _mm512_set1_ps(d_sum[m * blocks + b]); }
  int sum(int m, std::int64_t b) const {
    const std::int32_t* s = sum16 + (m * blocks + b) * 2;
    return s[0] + s[1];
  }
};

// Sums of the eight groups of a block for M rows.
template <int M>
inline void dot_groups(const __m512i w[8], const XView& x, std::int64_t b, __m512i sum[M]) {
  for (int g = 0; g < 8; ++g)
    for (int m = 0; m < M; ++m) sum[m] = dot(sum[m], w[g], x.quants(m, b) + 4 * g);
}

template <int M>
inline void fold(const __m512i sum[M], __m512 d, const XView& x, std::int64_t b, __m512 acc[M]) {
  for (int m = 0; m < M; ++m)
    acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[m]), _mm512_mul_ps(d, x.step(m, b)), acc[m]);
}

template <int M, int kOffset>
inline void start(const XView& x, std::int64_t b, __m512i sum[M]) {
  for (int m = 0; m < M; ++m) sum[m] = _mm512_set1_epi32(-kOffset * x.sum(m, b));
}

inline void nibbles(const std::uint8_t (*q)[64], __m512i w[8]) {
  for (int g = 0; g < 4; ++g) {
    const __m512i raw = bytes64(q[g]);
    w[g] = low(raw);
    w[g + 4] = high(raw);
  }
}

struct Q4_0 {
  using Panel = PanelQ4_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, __m512 acc[M]) {
    __m512i w[8], sum[M];
    nibbles(p.q, w);
    start<M, 8>(x, b, sum);
    dot_groups<M>(w, x, b, sum);
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

struct Q4_1 {
  using Panel = PanelQ4_1;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, __m512 acc[M]) {
    __m512i w[8], sum[M];
    nibbles(p.q, w);
    for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_si512();
    dot_groups<M>(w, x, b, sum);
    fold<M>(sum, half16(p.d), x, b, acc);
    const __m512 offset = half16(p.m);
    for (int m = 0; m < M; ++m) acc[m] = _mm512_fmadd_ps(offset, x.mass(m, b), acc[m]);
  }
};

inline __m512i with_fifth_bit(__m512i w, const std::uint8_t* bits) {
  std::uint64_t mask = 0;
  __builtin_memcpy(&mask, bits, 8);
  return _mm512_mask_add_epi8(w, mask, w, _mm512_set1_epi8(16));
}

struct Q5_0 {
  using Panel = PanelQ5_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, __m512 acc[M]) {
    __m512i w[8], sum[M];
    nibbles(p.q, w);
    for (int g = 0; g < 8; ++g) w[g] = with_fifth_bit(w[g], p.high[g]);
    start<M, 16>(x, b, sum);
    dot_groups<M>(w, x, b, sum);
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

struct Q8_0 {
  using Panel = PanelQ8_0;
  static constexpr int kSubs = 1;
  template <int M>
  static void step(const Panel& p, int, const XView& x, std::int64_t b, __m512 acc[M]) {
    __m512i sum[M];
    start<M, 128>(x, b, sum);
    for (int g = 0; g < 8; ++g) {
      const __m512i w =
          _mm512_xor_si512(bytes64(p.q[g]), _mm512_set1_epi8(static_cast<char>(0x80)));  // q + 128
      for (int m = 0; m < M; ++m) sum[m] = dot(sum[m], w, x.quants(m, b) + 4 * g);
    }
    fold<M>(sum, half16(p.d), x, b, acc);
  }
};

inline __m512i bytes_to_int(const void* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

struct Q4K {
  using Panel = PanelQ4K;
  static constexpr int kSubs = 8;
  template <int M>
  static void step(const Panel& p, int s, const XView& x, std::int64_t b, __m512 acc[M]) {
    const auto& sub = p.sub[s];
    __m512i w[8], sum[M];
    nibbles(sub.q, w);
    for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_si512();
    dot_groups<M>(w, x, b, sum);
    const __m512i scale = bytes_to_int(sub.scale);
    for (int m = 0; m < M; ++m) sum[m] = _mm512_mullo_epi32(sum[m], scale);
    fold<M>(sum, half16(p.d), x, b, acc);
    const __m512 offset = _mm512_xor_ps(
        _mm512_mul_ps(half16(p.dmin), _mm512_cvtepi32_ps(bytes_to_int(sub.min))), _mm512_set1_ps(-0.0f));
    for (int m = 0; m < M; ++m) acc[m] = _mm512_fmadd_ps(offset, x.mass(m, b), acc[m]);
  }
};

inline void six_bits(const PanelQ6K::Sub& sub, __m512i w[8]) {
  nibbles(sub.q, w);
  const __m512i two = _mm512_set1_epi8(0x30);
  for (int h = 0; h < 2; ++h) {
    const __m512i raw = bytes64(sub.high[h]);
    w[4 * h] = _mm512_or_si512(w[4 * h], _mm512_and_si512(_mm512_slli_epi16(raw, 4), two));
    w[4 * h + 1] = _mm512_or_si512(w[4 * h + 1], _mm512_and_si512(_mm512_slli_epi16(raw, 2), two));
    w[4 * h + 2] = _mm512_or_si512(w[4 * h + 2], _mm512_and_si512(raw, two));
    w[4 * h + 3] = _mm512_or_si512(w[4 * h + 3], _mm512_and_si512(_mm512_srli_epi16(raw, 2), two));
  }
}

struct Q6K {
  using Panel = PanelQ6K;
  static constexpr int kSubs = 8;
  template <int M>
  static void step(const Panel& p, int s, const XView& x, std::int64_t b, __m512 acc[M]) {
    const auto& sub = p.sub[s];
    __m512i w[8], total[M];
    six_bits(sub, w);
    for (int h = 0; h < 2; ++h) {
      const __m512i scale =
          _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sub.scale[h])));
      for (int m = 0; m < M; ++m) {
        __m512i sum = _mm512_set1_epi32(-32 * x.sum16[(m * x.blocks + b) * 2 + h]);
        for (int g = 4 * h; g < 4 * h + 4; ++g) sum = dot(sum, w[g], x.quants(m, b) + 4 * g);
        const __m512i scaled = _mm512_mullo_epi32(sum, scale);
        total[m] = h == 0 ? scaled : _mm512_add_epi32(total[m], scaled);
      }
    }
    fold<M>(total, half16(p.d), x, b, acc);
  }
};

template <class Type, int M>
inline void tile(const typename Type::Panel* panel, const XView& x, const PanelOut& out, std::int64_t row) {
  __m512 acc[M];
  for (int m = 0; m < M; ++m) acc[m] = _mm512_setzero_ps();
  if constexpr (Type::kSubs == 1) {
    for (std::int64_t b = 0; b < x.blocks; ++b) Type::template step<M>(panel[b], 0, x, b, acc);
  } else {
    for (std::int64_t b = 0; b < x.blocks; b += Type::kSubs)
      for (int s = 0; s < Type::kSubs; ++s) Type::template step<M>(panel[b / Type::kSubs], s, x, b + s, acc);
  }
  const auto columns = static_cast<__mmask16>((1u << out.columns) - 1u);
  for (int m = 0; m < M; ++m) _mm512_mask_storeu_ps(out.y + (row + m) * out.stride, columns, acc[m]);
}

template <class Type>
void dot_panel(const std::byte* panel, const QuantRows& rows, const PanelOut& out) noexcept {
  const auto* blocks = reinterpret_cast<const typename Type::Panel*>(panel);
  const std::int64_t count = rows.k / 32;
  std::int64_t row = 0;
  const auto view = [&] {
    return XView{rows.q + row * rows.k,
                 rows.d + row * count,
                 rows.d_sum + row * count,
                 rows.sum16 + row * count * 2,
                 rows.k,
                 count};
  };
  for (; row + 8 <= rows.rows; row += 8) tile<Type, 8>(blocks, view(), out, row);
  if (row + 4 <= rows.rows) {
    tile<Type, 4>(blocks, view(), out, row);
    row += 4;
  }
  if (row + 2 <= rows.rows) {
    tile<Type, 2>(blocks, view(), out, row);
    row += 2;
  }
  if (row < rows.rows) tile<Type, 1>(blocks, view(), out, row);
}

// Byte c of every lane's four, as floats after the offset is taken off.
inline __m512 element(__m512i group, int c, int offset) {
  const __m512i value =
      _mm512_and_si512(_mm512_srl_epi32(group, _mm_cvtsi32_si128(8 * c)), _mm512_set1_epi32(255));
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(value, _mm512_set1_epi32(offset)));
}

void decode_f16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const Half*>(panel);
  for (std::int64_t k = k0; k < k1; ++k, out += kPanelRows)
    _mm512_storeu_ps(out, half16(in + k * kPanelRows));
}
void decode_bf16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const std::uint16_t*>(panel);
  for (std::int64_t k = k0; k < k1; ++k, out += kPanelRows) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + k * kPanelRows));
    _mm512_storeu_si512(out, _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
}
void decode_q4_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b) {
    const auto& p = reinterpret_cast<const PanelQ4_0*>(panel)[b];
    __m512i w[8];
    nibbles(p.q, w);
    const __m512 d = half16(p.d);
    for (int e = 0; e < 32; ++e, out += 16)
      _mm512_storeu_ps(out, _mm512_mul_ps(d, element(w[e / 4], e % 4, 8)));
  }
}

void decode_q4_1(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b) {
    const auto& p = reinterpret_cast<const PanelQ4_1*>(panel)[b];
    __m512i w[8];
    nibbles(p.q, w);
    const __m512 d = half16(p.d), offset = half16(p.m);
    for (int e = 0; e < 32; ++e, out += 16)
      _mm512_storeu_ps(out, _mm512_add_ps(_mm512_mul_ps(d, element(w[e / 4], e % 4, 0)), offset));
  }
}

void decode_q5_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b) {
    const auto& p = reinterpret_cast<const PanelQ5_0*>(panel)[b];
    __m512i w[8];
    nibbles(p.q, w);
    for (int g = 0; g < 8; ++g) w[g] = with_fifth_bit(w[g], p.high[g]);
    const __m512 d = half16(p.d);
    for (int e = 0; e < 32; ++e, out += 16)
      _mm512_storeu_ps(out, _mm512_mul_ps(d, element(w[e / 4], e % 4, 16)));
  }
}

void decode_q8_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b) {
    const auto& p = reinterpret_cast<const PanelQ8_0*>(panel)[b];
    const __m512 d = half16(p.d);
    for (int e = 0; e < 32; ++e, out += 16) {
      const __m512i w = _mm512_xor_si512(bytes64(p.q[e / 4]), _mm512_set1_epi8(static_cast<char>(0x80)));
      _mm512_storeu_ps(out, _mm512_mul_ps(d, element(w, e % 4, 128)));
    }
  }
}

void decode_q4_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b) {
    const auto& p = reinterpret_cast<const PanelQ4K*>(panel)[b / 8];
    const auto& sub = p.sub[b % 8];
    __m512i w[8];
    nibbles(sub.q, w);
    const __m512 step = _mm512_mul_ps(half16(p.d), _mm512_cvtepi32_ps(bytes_to_int(sub.scale)));
    const __m512 offset = _mm512_mul_ps(half16(p.dmin), _mm512_cvtepi32_ps(bytes_to_int(sub.min)));
    for (int e = 0; e < 32; ++e, out += 16)
      _mm512_storeu_ps(out, _mm512_sub_ps(_mm512_mul_ps(step, element(w[e / 4], e % 4, 0)), offset));
  }
}

void decode_q6_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b) {
    const auto& p = reinterpret_cast<const PanelQ6K*>(panel)[b / 8];
    const auto& sub = p.sub[b % 8];
    __m512i w[8];
    six_bits(sub, w);
    for (int h = 0; h < 2; ++h) {
      const __m512i scale =
          _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sub.scale[h])));
      const __m512 step = _mm512_mul_ps(half16(p.d), _mm512_cvtepi32_ps(scale));
      for (int e = 16 * h; e < 16 * h + 16; ++e, out += 16)
        _mm512_storeu_ps(out, _mm512_mul_ps(step, element(w[e / 4], e % 4, 32)));
    }
  }
}

template <int M>
inline void gemm_tile(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, float* acc,
                      std::int64_t acc_stride) {
  __m512 sum[M];
  for (int m = 0; m < M; ++m) sum[m] = _mm512_loadu_ps(acc + m * acc_stride);
  for (std::int64_t i = 0; i < k; ++i) {
    const __m512 column = _mm512_loadu_ps(w + i * kPanelRows);
    for (int m = 0; m < M; ++m) sum[m] = _mm512_fmadd_ps(column, _mm512_set1_ps(x[m * x_stride + i]), sum[m]);
  }
  for (int m = 0; m < M; ++m) _mm512_storeu_ps(acc + m * acc_stride, sum[m]);
}

void gemm(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, std::int64_t rows,
          float* acc, std::int64_t acc_stride) noexcept {
  std::int64_t row = 0;
  for (; row + 12 <= rows; row += 12)
    gemm_tile<12>(w, k, x + row * x_stride, x_stride, acc + row * acc_stride, acc_stride);
  for (; row + 4 <= rows; row += 4)
    gemm_tile<4>(w, k, x + row * x_stride, x_stride, acc + row * acc_stride, acc_stride);
  for (; row < rows; ++row)
    gemm_tile<1>(w, k, x + row * x_stride, x_stride, acc + row * acc_stride, acc_stride);
}

}  // namespace

extern const MatmulRow kMatmulAvx512{.isa = "avx512",
                                     .q4_0 = &dot_panel<Q4_0>,
                                     .q4_1 = &dot_panel<Q4_1>,
                                     .q5_0 = &dot_panel<Q5_0>,
                                     .q8_0 = &dot_panel<Q8_0>,
                                     .q4_k = &dot_panel<Q4K>,
                                     .q6_k = &dot_panel<Q6K>,
                                     .decode_f16 = &decode_f16,
                                     .decode_bf16 = &decode_bf16,
                                     .decode_q4_0 = &decode_q4_0,
                                     .decode_q4_1 = &decode_q4_1,
                                     .decode_q5_0 = &decode_q5_0,
                                     .decode_q8_0 = &decode_q8_0,
                                     .decode_q4_k = &decode_q4_k,
                                     .decode_q6_k = &decode_q6_k,
                                     .gemm = &gemm};

}  // namespace kvtide
