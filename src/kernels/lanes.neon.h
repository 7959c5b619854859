// lanes.neon.h: sixteen f32 lanes in four 128-bit registers (AArch64's Advanced SIMD, and its bf16 instructions where
// the compiler may use them). Specification: lanes.scalar.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace kvtide {
namespace {

constexpr int kLanes = 16;
constexpr int kMixQueries = 4;
constexpr int kMixVectors = 1;

// Named, not an array: g++ 12 keeps arrays of such arrays in memory.
struct Lanes {
  float32x4_t a, b, c, d;
};

// f of every register of one or more vectors.
template <class R, class F, class... A>
inline R map(F f, const A&... x) {
  return {f(x.a...), f(x.b...), f(x.c...), f(x.d...)};
}

inline Lanes set1(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
inline Lanes load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
inline Lanes widen_halves(uint16x8_t low, uint16x8_t high) {
  const float16x8_t a = vreinterpretq_f16_u16(low), b = vreinterpretq_f16_u16(high);
  return {vcvt_f32_f16(vget_low_f16(a)), vcvt_high_f32_f16(a), vcvt_f32_f16(vget_low_f16(b)),
          vcvt_high_f32_f16(b)};
}
inline Lanes load(const std::uint16_t* p) { return widen_halves(vld1q_u16(p), vld1q_u16(p + 8)); }
inline Lanes widen_bytes(int8x16_t bytes) {
  const int16x8_t a = vmovl_s8(vget_low_s8(bytes)), b = vmovl_high_s8(bytes);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(a))), vcvtq_f32_s32(vmovl_high_s16(a)),
          vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))), vcvtq_f32_s32(vmovl_high_s16(b))};
}
inline Lanes load(const std::int8_t* p) { return widen_bytes(vld1q_s8(p)); }
inline int8x16_t nibbles(const std::uint8_t* p, int shift) {
  const uint8x16_t moved = vshlq_u8(vld1q_u8(p), vdupq_n_s8(static_cast<std::int8_t>(-shift)));
  return vsubq_s8(vreinterpretq_s8_u8(vandq_u8(moved, vdupq_n_u8(15))), vdupq_n_s8(8));
}
inline Lanes load_nibbles(const std::uint8_t* p, int shift) { return widen_bytes(nibbles(p, shift)); }
inline float from_half(std::uint16_t bits) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}
inline void store(float* p, Lanes a) {
  vst1q_f32(p, a.a);
  vst1q_f32(p + 4, a.b);
  vst1q_f32(p + 8, a.c);
  vst1q_f32(p + 12, a.d);
}
inline void store(std::uint16_t* p, Lanes a) {
  vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.a), a.b)));
  vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.c), a.d)));
}
inline Lanes add(Lanes a, Lanes b) {
  return map<Lanes>([](auto x, auto y) { return vaddq_f32(x, y); }, a, b);
}
inline Lanes sub(Lanes a, Lanes b) {
  return map<Lanes>([](auto x, auto y) { return vsubq_f32(x, y); }, a, b);
}
inline Lanes mul(Lanes a, Lanes b) {
  return map<Lanes>([](auto x, auto y) { return vmulq_f32(x, y); }, a, b);
}
inline Lanes div(Lanes a, Lanes b) {
  return map<Lanes>([](auto x, auto y) { return vdivq_f32(x, y); }, a, b);
}
inline Lanes fma(Lanes a, Lanes b, Lanes sum) {
  sum.a = vfmaq_f32(sum.a, a.a, b.a);
  sum.b = vfmaq_f32(sum.b, a.b, b.b);
  sum.c = vfmaq_f32(sum.c, a.c, b.c);
  sum.d = vfmaq_f32(sum.d, a.d, b.d);
  return sum;
}
// Compared and selected: the processor's own maximum of a number and a NaN is another.
inline Lanes max(Lanes a, Lanes b) {
  return map<Lanes>([](auto x, auto y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }, a, b);
}
inline Lanes min(Lanes a, Lanes b) {
  return map<Lanes>([](auto x, auto y) { return vbslq_f32(vcltq_f32(x, y), x, y); }, a, b);
}
inline Lanes abs(Lanes a) {
  return map<Lanes>([](auto x) { return vabsq_f32(x); }, a);
}
inline Lanes round(Lanes a) {
  const Lanes magic = set1(0x1.8p23f);
  return sub(add(a, magic), magic);
}
inline Lanes select_less(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return map<Lanes>([](auto x, auto y, auto t, auto f) { return vbslq_f32(vcltq_f32(x, y), t, f); }, a, b,
                    yes, no);
}
inline Lanes pow2(Lanes a) {
  return map<Lanes>(
      [](auto x) {
        return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(x), vdupq_n_s32(127)), 23));
      },
      a);
}
inline void store_i8(std::int8_t* p, Lanes a) {
  const auto words = [](float32x4_t x, float32x4_t y) {
    return vmovn_high_s32(vmovn_s32(vcvtq_s32_f32(x)), vcvtq_s32_f32(y));
  };
  vst1q_s8(p, vmovn_high_s16(vmovn_s16(words(a.a, a.b)), words(a.c, a.d)));
}

template <int Step>
inline Lanes swap(Lanes a) {
  if constexpr (Step == 8) return {a.c, a.d, a.a, a.b};
  if constexpr (Step == 4) return {a.b, a.a, a.d, a.c};
  if constexpr (Step == 2) return map<Lanes>([](auto x) { return vextq_f32(x, x, 2); }, a);
  return map<Lanes>([](auto x) { return vrev64q_f32(x); }, a);
}

// The first two steps of reduce_add: four lanes are left.
inline float32x4_t fold4(Lanes a) { return vaddq_f32(vaddq_f32(a.a, a.c), vaddq_f32(a.b, a.d)); }
inline float reduce_add(Lanes a) {
  const float32x4_t s = fold4(a);
  return vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)));
}
inline float reduce_max(Lanes a) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.a, a.b), vmaxq_f32(a.c, a.d))); }

// Lanes 0 and 2 of x, 1 and 3 of x, then of y, added.
inline float32x4_t add_halves(float32x4_t x, float32x4_t y) {
  const float64x2_t a = vreinterpretq_f64_f32(x), b = vreinterpretq_f64_f32(y);
  return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(a, b)), vreinterpretq_f32_f64(vzip2q_f64(a, b)));
}
inline float32x4_t dot4(const float* query, const float* keys, int stride, int dim) {
  Lanes sum[4];
  for (Lanes& one : sum) one = set1(0.0f);
  for (int d = 0; d < dim; d += kLanes) {
    const Lanes q = load(query + d);
    for (int i = 0; i < 4; ++i) sum[i] = fma(q, load(keys + i * stride + d), sum[i]);
  }
  return vpaddq_f32(add_halves(fold4(sum[0]), fold4(sum[1])), add_halves(fold4(sum[2]), fold4(sum[3])));
}
inline Lanes dot16(const float* query, const float* keys, int stride, int dim) {
  const auto four = [&](int key) { return dot4(query, keys + key * stride, stride, dim); };
  return {four(0), four(4), four(8), four(12)};
}

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
constexpr int kPairQueries = 6;
#else
constexpr int kPairQueries = 4;  // the numbers of a pair lie in registers of their own
#endif
constexpr int kWordQueries = kPairQueries;
constexpr int kPairVectors = 1;
constexpr int kPairWords = 1;
constexpr int kProbeChains = 6;
constexpr int kFewPairQueries = 0, kFewByteQueries = 0;  // not timed yet

struct Pairs {
  uint32x4_t a, b, c, d;
};
inline float32x4_t high_number(uint32x4_t pair) {
  return vreinterpretq_f32_u32(vandq_u32(pair, vdupq_n_u32(0xffff0000u)));
}
inline float32x4_t low_number(uint32x4_t pair) { return vreinterpretq_f32_u32(vshlq_n_u32(pair, 16)); }

inline Pairs load(const std::uint32_t* p) {
  return {vld1q_u32(p), vld1q_u32(p + 4), vld1q_u32(p + 8), vld1q_u32(p + 12)};
}
inline void store(std::uint32_t* p, Pairs a) {
  vst1q_u32(p, a.a);
  vst1q_u32(p + 4, a.b);
  vst1q_u32(p + 8, a.c);
  vst1q_u32(p + 12, a.d);
}

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
// bf16 bits of a, then of b.
inline uint16x8_t to_bf16(float32x4_t a, float32x4_t b) {
  return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b));
}
// The instructions for one number of a pair fuse as lanes.scalar.h wants; those for both at once round otherwise.
inline float32x4_t dot_pair(float32x4_t sum, uint32x4_t pair, bfloat16x8_t query) {
  const bfloat16x8_t x = vreinterpretq_bf16_u32(pair);
  return vbfmlalbq_f32(vbfmlaltq_f32(sum, x, query), x, query);
}
inline bfloat16x8_t spread_query(std::uint32_t query) { return vreinterpretq_bf16_u32(vdupq_n_u32(query)); }
#else
// What is added to the bits so that their upper half is the rounded number; a NaN becomes a quiet one.
inline uint32x4_t rounding(float32x4_t a) {
  const uint32x4_t bits = vreinterpretq_u32_f32(a);
  const uint32x4_t nearest = vsraq_n_u32(vdupq_n_u32(0x7fff), vshlq_n_u32(bits, 15), 31);
  return vbslq_u32(vceqq_f32(a, a), nearest, vbicq_u32(vdupq_n_u32(0x400000), bits));
}
inline uint16x8_t to_bf16(float32x4_t a, float32x4_t b) {
  return vaddhn_high_u32(vaddhn_u32(vreinterpretq_u32_f32(a), rounding(a)), vreinterpretq_u32_f32(b),
                         rounding(b));
}
struct SpreadQuery {
  float32x4_t high, low;
};
inline float32x4_t dot_pair(float32x4_t sum, uint32x4_t pair, SpreadQuery query) {
  return vfmaq_f32(vfmaq_f32(sum, high_number(pair), query.high), low_number(pair), query.low);
}
inline SpreadQuery spread_query(std::uint32_t query) {
  const uint32x4_t pair = vdupq_n_u32(query);
  return {high_number(pair), low_number(pair)};
}
#endif
inline Lanes dot_pairs(Lanes sum, std::uint32_t query, Pairs a) {
  const auto q = spread_query(query);
  sum.a = dot_pair(sum.a, a.a, q);
  sum.b = dot_pair(sum.b, a.b, q);
  sum.c = dot_pair(sum.c, a.c, q);
  sum.d = dot_pair(sum.d, a.d, q);
  return sum;
}
inline Pairs join_pairs(Lanes a, Lanes b) {
  return {vreinterpretq_u32_u16(to_bf16(a.a, a.b)), vreinterpretq_u32_u16(to_bf16(a.c, a.d)),
          vreinterpretq_u32_u16(to_bf16(b.a, b.b)), vreinterpretq_u32_u16(to_bf16(b.c, b.d))};
}
inline Pairs zip_pairs(Lanes a, Lanes b) {
  const uint16x8_t a0 = to_bf16(a.a, a.b), a1 = to_bf16(a.c, a.d);
  const uint16x8_t b0 = to_bf16(b.a, b.b), b1 = to_bf16(b.c, b.d);
  return {vreinterpretq_u32_u16(vzip1q_u16(a0, b0)), vreinterpretq_u32_u16(vzip2q_u16(a0, b0)),
          vreinterpretq_u32_u16(vzip1q_u16(a1, b1)), vreinterpretq_u32_u16(vzip2q_u16(a1, b1))};
}
inline Lanes first_of_pairs(Pairs x) {
  return {low_number(x.a), low_number(x.b), low_number(x.c), low_number(x.d)};
}
inline Lanes second_of_pairs(Pairs x) {
  return {high_number(x.a), high_number(x.b), high_number(x.c), high_number(x.d)};
}

inline uint32x4_t zip_doubles(uint32x4_t a, uint32x4_t b, bool high) {
  const uint64x2_t x = vreinterpretq_u64_u32(a), y = vreinterpretq_u64_u32(b);
  return vreinterpretq_u32_u64(high ? vzip2q_u64(x, y) : vzip1q_u64(x, y));
}
inline void transpose(Pairs a[kLanes]) {
  constexpr uint32x4_t Pairs::*kQuarter[] = {&Pairs::a, &Pairs::b, &Pairs::c, &Pairs::d};
  Pairs b[kLanes];  // quarter k of b[4 j + i]: column 4 j + i of rows 4 k to 4 k + 3
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto row = [&](int i) { return a[4 * k + i].*kQuarter[j]; };
      const uint32x4_t even = vtrn1q_u32(row(0), row(1)), odd = vtrn2q_u32(row(0), row(1));
      const uint32x4_t next_even = vtrn1q_u32(row(2), row(3)), next_odd = vtrn2q_u32(row(2), row(3));
      b[4 * j].*kQuarter[k] = zip_doubles(even, next_even, false);
      b[4 * j + 1].*kQuarter[k] = zip_doubles(odd, next_odd, false);
      b[4 * j + 2].*kQuarter[k] = zip_doubles(even, next_even, true);
      b[4 * j + 3].*kQuarter[k] = zip_doubles(odd, next_odd, true);
    }
  for (int i = 0; i < kLanes; ++i) a[i] = b[i];
}

struct Ints {
  int32x4_t a, b, c, d;
};
inline Ints add(Ints x, Ints y) {
  return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b), vaddq_s32(x.c, y.c), vaddq_s32(x.d, y.d)};
}

inline Ints dot_pairs(Ints sum, std::uint32_t query, Pairs a) {
  const int16x4_t q = vreinterpret_s16_u32(vdup_n_u32(query));
  const auto add = [q](int32x4_t& low, int32x4_t& high, uint32x4_t x, uint32x4_t y) {
    const int16x8_t p = vreinterpretq_s16_u32(x), r = vreinterpretq_s16_u32(y);
    const int16x8_t first = vuzp1q_s16(p, r), second = vuzp2q_s16(p, r);  // numbers of eight pairs
    low = vmlal_lane_s16(vmlal_lane_s16(low, vget_low_s16(first), q, 0), vget_low_s16(second), q, 1);
    high = vmlal_high_lane_s16(vmlal_high_lane_s16(high, first, q, 0), second, q, 1);
  };
  add(sum.a, sum.b, a.a, a.b);
  add(sum.c, sum.d, a.c, a.d);
  return sum;
}
inline Lanes to_lanes(Ints a) {
  return map<Lanes>([](auto x) { return vcvtq_f32_s32(x); }, a);
}
struct Bytes {
  int8x16_t half[2];
};
inline Bytes load_bytes(const std::int8_t* p) { return {vld1q_s8(p), vld1q_s8(p + 16)}; }
inline Bytes load_nibbles(const std::uint8_t* p) { return {nibbles(p, 0), nibbles(p, 4)}; }
inline Pairs join_bytes(Bytes a, Bytes b) {
  const auto as = [](int8x16_t bytes) { return vreinterpretq_u32_s8(bytes); };
  return {as(a.half[0]), as(a.half[1]), as(b.half[0]), as(b.half[1])};
}
inline Pairs even_bytes(Pairs a) {
  return map<Pairs>(
      [](auto x) { return vreinterpretq_u32_s16(vshrq_n_s16(vshlq_n_s16(vreinterpretq_s16_u32(x), 8), 8)); },
      a);
}
inline Pairs odd_bytes(Pairs a) {
  return map<Pairs>([](auto x) { return vreinterpretq_u32_s16(vshrq_n_s16(vreinterpretq_s16_u32(x), 8)); },
                    a);
}
inline void zip_bytes(Bytes a, Bytes b, Pairs (&out)[2]) {
  const auto low = [](int8x16_t bytes) { return vreinterpretq_u32_s16(vmovl_s8(vget_low_s8(bytes))); };
  const auto high = [](int8x16_t bytes) { return vreinterpretq_u32_s16(vmovl_high_s8(bytes)); };
  for (int i = 0; i < 2; ++i) {
    const int8x16_t first = vzip1q_s8(a.half[i], b.half[i]), second = vzip2q_s8(a.half[i], b.half[i]);
    out[i] = {low(first), high(first), low(second), high(second)};
  }
}
inline void store_words(std::uint32_t* p, Lanes a) {
  const Lanes bits = add(a, set1(0x1.8p23f));
  const auto words = [](float32x4_t x, float32x4_t y) {
    return vreinterpretq_u32_u16(
        vmovn_high_u32(vmovn_u32(vreinterpretq_u32_f32(x)), vreinterpretq_u32_f32(y)));
  };
  vst1q_u32(p, words(bits.a, bits.b));
  vst1q_u32(p + 4, words(bits.c, bits.d));
}
inline std::int32_t sum_i8(const std::int8_t* p) { return vaddlvq_s8(vld1q_s8(p)); }
inline uint32x4_t max_bits(float32x4_t a, float32x4_t b) {
  return vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b));
}
inline Lanes max_bits(Lanes a, Lanes b) {
  return map<Lanes>([](auto x, auto y) { return vreinterpretq_f32_u32(max_bits(x, y)); }, a, b);
}
inline float reduce_max_bits(Lanes a) {
  const std::uint32_t most = vmaxvq_u32(vmaxq_u32(max_bits(a.a, a.b), max_bits(a.c, a.d)));
  return __builtin_bit_cast(float, most);
}

}  // namespace
}  // namespace kvtide

#include "kernels/lanes_by_one.inl"
