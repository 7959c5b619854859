// matmul.scalar.cpp: matrix products in plain C++: the specification of the tuned files. Never tuned itself.
#include "base/half.h"
#include "kernels/matmul_kernel.h"

namespace kvtide {
namespace {

// Quant of row r, element e (0..31) of a block whose 4-bit parts are q.
inline int nibble(const std::uint8_t (*q)[64], int r, int e) {
  const int group = e / 4, byte = 4 * r + e % 4;
  return group < 4 ? q[group][byte] & 15 : q[group - 4][byte] >> 4;
}
inline int fifth_bit(const std::uint8_t (*high)[8], int r, int e) {
  const int bit = 4 * r + e % 4;
  return (high[e / 4][bit / 8] >> (bit % 8)) & 1;
}
inline int top_bits(const std::uint8_t (*high)[64], int r, int e) {
  const int group = e / 4;
  return (high[group / 4][4 * r + e % 4] >> (2 * (group % 4))) & 3;
}

// A block of 32 elements of one quantised row.
struct XBlock {
  QuantRow row;
  std::int64_t block;

  int q(int e) const { return row.four(block * 8 + e / 4)[e % 4]; }
  float d() const { return row.d[block * row.stride]; }
  float d_sum() const { return row.d_sum[block * row.stride]; }
};

// Calls step(block of 16 rows, index of a 32-block inside it, activations, row, accumulator) along k for
// every output.
template <class Panel, int kSubs, class Step>
inline void walk(const std::byte* panel, const QuantRows& x, const PanelOut& out, Step step) {
  const auto* blocks = reinterpret_cast<const Panel*>(panel);
  for (std::int64_t m = 0; m < x.rows; ++m) {
    const QuantRow row = x.row(m);
    for (int r = 0; r < out.columns; ++r) {
      float acc = 0.0f;
      for (std::int64_t b = 0; b < x.k / 32; ++b)
        acc = step(blocks[b / kSubs], static_cast<int>(b % kSubs), XBlock{row, b}, r, acc);
      out.y[m * out.stride + r] = acc;
    }
  }
}

template <class Quant>
inline int dot(const XBlock& x, int first, int last, Quant quant) {
  int sum = 0;
  for (int e = first; e < last; ++e) sum += quant(e) * x.q(e);
  return sum;
}

void q4_0(const std::byte* panel, const QuantRows& x, const PanelOut& out) noexcept {
  walk<PanelQ4_0, 1>(panel, x, out, [](const PanelQ4_0& w, int, const XBlock& xb, int r, float acc) {
    const int sum = dot(xb, 0, 32, [&](int e) { return nibble(w.q, r, e) - 8; });
    return __builtin_fmaf(static_cast<float>(sum), f16_to_f32(w.d[r]) * xb.d(), acc);
  });
}

void q4_1(const std::byte* panel, const QuantRows& x, const PanelOut& out) noexcept {
  walk<PanelQ4_1, 1>(panel, x, out, [](const PanelQ4_1& w, int, const XBlock& xb, int r, float acc) {
    const int sum = dot(xb, 0, 32, [&](int e) { return nibble(w.q, r, e); });
    acc = __builtin_fmaf(static_cast<float>(sum), f16_to_f32(w.d[r]) * xb.d(), acc);
    return __builtin_fmaf(f16_to_f32(w.m[r]), xb.d_sum(), acc);
  });
}

void q5_0(const std::byte* panel, const QuantRows& x, const PanelOut& out) noexcept {
  walk<PanelQ5_0, 1>(panel, x, out, [](const PanelQ5_0& w, int, const XBlock& xb, int r, float acc) {
    const int sum =
        dot(xb, 0, 32, [&](int e) { return nibble(w.q, r, e) + 16 * fifth_bit(w.high, r, e) - 16; });
    return __builtin_fmaf(static_cast<float>(sum), f16_to_f32(w.d[r]) * xb.d(), acc);
  });
}

void q8_0(const std::byte* panel, const QuantRows& x, const PanelOut& out) noexcept {
  walk<PanelQ8_0, 1>(panel, x, out, [](const PanelQ8_0& w, int, const XBlock& xb, int r, float acc) {
    const int sum = dot(xb, 0, 32, [&](int e) { return static_cast<int>(w.q[e / 4][4 * r + e % 4]); });
    return __builtin_fmaf(static_cast<float>(sum), f16_to_f32(w.d[r]) * xb.d(), acc);
  });
}

// A sub-block of q4_k or q5_k.
template <class Panel, class Quant>
inline float with_min(const Panel& w, int s, const XBlock& xb, int r, float acc, Quant quant) {
  const auto& sub = w.sub[s];
  const auto sum = static_cast<float>(dot(xb, 0, 32, quant));
  acc = __builtin_fmaf(sum * (f16_to_f32(w.d[r]) * static_cast<float>(sub.scale[r])), xb.d(), acc);
  return __builtin_fmaf(-(f16_to_f32(w.dmin[r]) * static_cast<float>(sub.min[r])), xb.d_sum(), acc);
}

void q4_k(const std::byte* panel, const QuantRows& x, const PanelOut& out) noexcept {
  walk<PanelQ4K, 8>(panel, x, out, [](const PanelQ4K& w, int s, const XBlock& xb, int r, float acc) {
    return with_min(w, s, xb, r, acc, [&](int e) { return nibble(w.sub[s].q, r, e); });
  });
}

void q5_k(const std::byte* panel, const QuantRows& x, const PanelOut& out) noexcept {
  walk<PanelQ5K, 8>(panel, x, out, [](const PanelQ5K& w, int s, const XBlock& xb, int r, float acc) {
    return with_min(w, s, xb, r, acc,
                    [&](int e) { return nibble(w.sub[s].q, r, e) + 16 * fifth_bit(w.sub[s].high, r, e); });
  });
}

void q6_k(const std::byte* panel, const QuantRows& x, const PanelOut& out) noexcept {
  walk<PanelQ6K, 8>(panel, x, out, [](const PanelQ6K& w, int s, const XBlock& xb, int r, float acc) {
    const auto& sub = w.sub[s];
    const auto half = [&](int h) {
      return static_cast<float>(dot(xb, 16 * h, 16 * h + 16, [&](int e) {
        return nibble(sub.q, r, e) + 16 * top_bits(sub.high, r, e) - 32;
      }));
    };
    const auto scale = [&](int h) { return f16_to_f32(w.d[r]) * static_cast<float>(sub.scale[h][r]); };
    return __builtin_fmaf(__builtin_fmaf(half(1), scale(1), half(0) * scale(0)), xb.d(), acc);
  });
}

template <class Panel, class Value>
inline void decode(const std::byte* panel, std::int64_t block, std::int64_t k0, std::int64_t k1, float* out,
                   Value value) {
  const auto* blocks = reinterpret_cast<const Panel*>(panel);
  for (std::int64_t k = k0; k < k1; ++k)
    for (int r = 0; r < kPanelRows; ++r)
      out[(k - k0) * kPanelRows + r] = value(blocks[k / block], static_cast<int>(k % block), r);
}

void decode_f16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const Half*>(panel);
  for (std::int64_t i = k0 * kPanelRows; i < k1 * kPanelRows; ++i) *out++ = f16_to_f32(in[i]);
}
void decode_bf16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const std::uint16_t*>(panel);
  for (std::int64_t i = k0 * kPanelRows; i < k1 * kPanelRows; ++i) *out++ = bf16_to_f32(in[i]);
}
void decode_q4_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<PanelQ4_0>(panel, 32, k0, k1, out, [](const PanelQ4_0& w, int e, int r) {
    return f16_to_f32(w.d[r]) * static_cast<float>(nibble(w.q, r, e) - 8);
  });
}
void decode_q4_1(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<PanelQ4_1>(panel, 32, k0, k1, out, [](const PanelQ4_1& w, int e, int r) {
    return f16_to_f32(w.d[r]) * static_cast<float>(nibble(w.q, r, e)) + f16_to_f32(w.m[r]);
  });
}
void decode_q5_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<PanelQ5_0>(panel, 32, k0, k1, out, [](const PanelQ5_0& w, int e, int r) {
    return f16_to_f32(w.d[r]) * static_cast<float>(nibble(w.q, r, e) + 16 * fifth_bit(w.high, r, e) - 16);
  });
}
void decode_q8_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<PanelQ8_0>(panel, 32, k0, k1, out, [](const PanelQ8_0& w, int e, int r) {
    return f16_to_f32(w.d[r]) * static_cast<float>(w.q[e / 4][4 * r + e % 4]);
  });
}
void decode_q4_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<PanelQ4K>(panel, 256, k0, k1, out, [](const PanelQ4K& w, int e, int r) {
    const auto& sub = w.sub[e / 32];
    const float step = f16_to_f32(w.d[r]) * static_cast<float>(sub.scale[r]);
    return step * static_cast<float>(nibble(sub.q, r, e % 32)) -
           f16_to_f32(w.dmin[r]) * static_cast<float>(sub.min[r]);
  });
}
void decode_q5_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<PanelQ5K>(panel, 256, k0, k1, out, [](const PanelQ5K& w, int e, int r) {
    const auto& sub = w.sub[e / 32];
    const float step = f16_to_f32(w.d[r]) * static_cast<float>(sub.scale[r]);
    return step * static_cast<float>(nibble(sub.q, r, e % 32) + 16 * fifth_bit(sub.high, r, e % 32)) -
           f16_to_f32(w.dmin[r]) * static_cast<float>(sub.min[r]);
  });
}
void decode_q6_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<PanelQ6K>(panel, 256, k0, k1, out, [](const PanelQ6K& w, int e, int r) {
    const auto& sub = w.sub[e / 32];
    const float step = f16_to_f32(w.d[r]) * static_cast<float>(sub.scale[e % 32 / 16][r]);
    return step * static_cast<float>(nibble(sub.q, r, e % 32) + 16 * top_bits(sub.high, r, e % 32) - 32);
  });
}

void gemm(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, std::int64_t rows,
          float* acc, std::int64_t acc_stride) noexcept {
  for (std::int64_t m = 0; m < rows; ++m)
    for (int r = 0; r < kPanelRows; ++r) {
      float sum = acc[m * acc_stride + r];
      for (std::int64_t i = 0; i < k; ++i)
        sum = __builtin_fmaf(w[i * kPanelRows + r], x[m * x_stride + i], sum);
      acc[m * acc_stride + r] = sum;
    }
}

}  // namespace

extern const MatmulRow kMatmulScalar{.isa = "scalar",
                                     .q4_0 = &q4_0,
                                     .q4_1 = &q4_1,
                                     .q5_0 = &q5_0,
                                     .q8_0 = &q8_0,
                                     .q4_k = &q4_k,
                                     .q5_k = &q5_k,
                                     .q6_k = &q6_k,
                                     .decode_f16 = &decode_f16,
                                     .decode_bf16 = &decode_bf16,
                                     .decode_q4_0 = &decode_q4_0,
                                     .decode_q4_1 = &decode_q4_1,
                                     .decode_q5_0 = &decode_q5_0,
                                     .decode_q8_0 = &decode_q8_0,
                                     .decode_q4_k = &decode_q4_k,
                                     .decode_q5_k = &decode_q5_k,
                                     .decode_q6_k = &decode_q6_k,
                                     .gemm = &gemm};

}  // namespace kvtide
