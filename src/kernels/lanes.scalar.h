// lanes.scalar.h: sixteen f32 lanes as plain C++: the specification of lanes.avx2.h and lanes.avx512.h.
//
// A kernel family written on Lanes is compiled once per instruction set and gives the same bits on each:
// every operation here is exactly rounded, and reductions follow one fixed tree. Everything sits in an
// anonymous namespace, so that no object can lend its instructions to another through the linker
// (tools/check_isa.sh). Included by kernel files only, never together with another lanes header.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace kvtide {
namespace {

constexpr int kLanes = 16;
constexpr int kMixQueries = 1;  // queries x vectors accumulated together when mixing values
constexpr int kMixVectors = 1;

struct Lanes {
  float v[kLanes];
};

inline Lanes set1(float x) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = x;
  return r;
}
inline Lanes load(const float* p) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = p[i];
  return r;
}
inline Lanes load(const std::uint16_t* p) {  // f16 bits
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f16_to_f32(p[i]);
  return r;
}
inline Lanes load(const std::int8_t* p) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(p[i]);
  return r;
}
// The low (shift 0) or high (shift 4) halves of 16 bytes, less 8.
inline Lanes load_nibbles(const std::uint8_t* p, int shift) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(((p[i] >> shift) & 15) - 8);
  return r;
}
inline float from_half(std::uint16_t bits) { return f16_to_f32(bits); }
inline void store(float* p, const Lanes& a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline void store(std::uint16_t* p, const Lanes& a) {
  for (int i = 0; i < kLanes; ++i) p[i] = f32_to_f16(a.v[i]);
}
inline Lanes add(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i] + b.v[i];
  return r;
}
inline Lanes sub(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i] - b.v[i];
  return r;
}
inline Lanes mul(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i] * b.v[i];
  return r;
}
inline Lanes div(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i] / b.v[i];
  return r;
}
inline Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}
inline Lanes max(const Lanes& a, const Lanes& b) {  // b where either is NaN, as the x86 instruction
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return r;
}
inline Lanes min(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return r;
}
inline Lanes abs(const Lanes& a) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = __builtin_fabsf(a.v[i]);
  return r;
}
inline Lanes round(const Lanes& a) {  // to nearest, ties to even; |a| < 2^22
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = (a.v[i] + 0x1.8p23f) - 0x1.8p23f;
  return r;
}
inline Lanes select_less(const Lanes& a, const Lanes& b, const Lanes& yes,
                         const Lanes& no) {  // a < b ? yes : no
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i] < b.v[i] ? yes.v[i] : no.v[i];
  return r;
}
inline Lanes pow2(const Lanes& a) {  // 2^a for integral a in [-126, 127]; anything for NaN
  Lanes r;
  for (int i = 0; i < kLanes; ++i) {
    // The integer appears in the low bits of a + 1.5 * 2^23, without a conversion that NaN would make
    // undefined.
    const std::uint32_t biased = std::bit_cast<std::uint32_t>(a.v[i] + 0x1.8p23f) - 0x4b400000u + 127u;
    r.v[i] = std::bit_cast<float>(biased << 23);
  }
  return r;
}
inline void store_i8(std::int8_t* p, const Lanes& a) {  // integral values in [-128, 127]
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::int8_t>(a.v[i]);
}

// Lane i of the result is lane i xor Step.
template <int Step>
inline Lanes swap(const Lanes& a) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i ^ Step];
  return r;
}

// The one order in which sixteen lanes are summed: halves, then quarters, then pairs.
inline float reduce_add(const Lanes& a) {
  float s[8];
  for (int i = 0; i < 8; ++i) s[i] = a.v[i] + a.v[i + 8];
  for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
  return (s[0] + s[2]) + (s[1] + s[3]);
}
inline float reduce_max(const Lanes& a) {
  float m = a.v[0];
  for (int i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}

// Dot products of one query with sixteen keys: keys[i] = row i of a [16][stride] f32 block, dim a multiple
// of 16.
inline Lanes dot16(const float* query, const float* keys, int stride, int dim) {
  Lanes r;
  for (int key = 0; key < kLanes; ++key) {
    Lanes sum = set1(0.0f);
    for (int d = 0; d < dim; d += kLanes) sum = fma(load(query + d), load(keys + key * stride + d), sum);
    r.v[key] = reduce_add(sum);
  }
  return r;
}

// Sixteen pairs of bf16 numbers: the first of each pair in the low half. Numbers are rounded to nearest, ties
// to even.
// Queries x vectors that are accumulated together when multiplying pairs, of bf16 numbers and of whole ones.
constexpr int kPairQueries = 1;
constexpr int kWordQueries = 1;
constexpr int kPairVectors = 1;
constexpr int kPairWords = 1;  // of a pair of a query: pair_products.inl
constexpr int kProbeChains = 12;
// At most so many queries meet rows that were not packed before (attend_few.inl, attend_few_ints.inl).
constexpr int kFewPairQueries = 8, kFewByteQueries = 8;

struct Pairs {
  std::uint32_t v[kLanes];
};

inline std::uint32_t to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline Pairs load(const std::uint32_t* p) {
  Pairs r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = p[i];
  return r;
}
inline void store(std::uint32_t* p, const Pairs& a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline Pairs zip_pairs(const Lanes& a, const Lanes& b) {  // pair i: a[i], b[i]
  Pairs r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = to_bf16(a.v[i]) | to_bf16(b.v[i]) << 16;
  return r;
}
inline Pairs join_pairs(const Lanes& a, const Lanes& b) {  // neighbours of a, then of b
  Pairs r;
  for (int i = 0; i < kLanes / 2; ++i) {
    r.v[i] = to_bf16(a.v[2 * i]) | to_bf16(a.v[2 * i + 1]) << 16;
    r.v[i + kLanes / 2] = to_bf16(b.v[2 * i]) | to_bf16(b.v[2 * i + 1]) << 16;
  }
  return r;
}
inline Lanes first_of_pairs(const Pairs& a) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = std::bit_cast<float>(a.v[i] << 16);
  return r;
}
inline Lanes second_of_pairs(const Pairs& a) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = std::bit_cast<float>(a.v[i] & 0xffff0000u);
  return r;
}
inline void transpose(Pairs a[kLanes]) {
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < i; ++j) {
      const std::uint32_t other = a[i].v[j];
      a[i].v[j] = a[j].v[i];
      a[j].v[i] = other;
    }
}
// sum + the product of the pairs: the second numbers first, each step one fused multiplication and addition.
inline Lanes dot_pairs(const Lanes& sum, std::uint32_t query, const Pairs& a) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) {
    const float high = __builtin_fmaf(std::bit_cast<float>(query & 0xffff0000u),
                                      std::bit_cast<float>(a.v[i] & 0xffff0000u), sum.v[i]);
    r.v[i] = __builtin_fmaf(std::bit_cast<float>(query << 16), std::bit_cast<float>(a.v[i] << 16), high);
  }
  return r;
}

// Sixteen sums of whole numbers. Pairs are then of int16 numbers, and sums are exact: callers keep them from
// overflowing.
struct Ints {
  std::int32_t v[kLanes];
};
inline Ints add(const Ints& a, const Ints& b) {
  Ints r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = a.v[i] + b.v[i];
  return r;
}

inline Ints dot_pairs(const Ints& sum, std::uint32_t query, const Pairs& a) {
  const auto low = [](std::uint32_t pair) {
    return static_cast<std::int32_t>(static_cast<std::int16_t>(pair));
  };
  Ints r;
  for (int i = 0; i < kLanes; ++i)
    r.v[i] = sum.v[i] + low(query) * low(a.v[i]) + low(query >> 16) * low(a.v[i] >> 16);
  return r;
}
inline Lanes to_lanes(const Ints& a) {  // to nearest, ties to even
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(a.v[i]);
  return r;
}
struct Bytes {
  std::int8_t v[2 * kLanes];
};
inline Bytes load_bytes(const std::int8_t* p) {
  Bytes r;
  __builtin_memcpy(r.v, p, sizeof r.v);
  return r;
}
inline Bytes load_nibbles(const std::uint8_t* p) {  // less 8; the low ones first
  Bytes r;
  for (int i = 0; i < kLanes; ++i) {
    r.v[i] = static_cast<std::int8_t>((p[i] & 15) - 8);
    r.v[i + kLanes] = static_cast<std::int8_t>((p[i] >> 4) - 8);
  }
  return r;
}
inline Pairs join_bytes(const Bytes& a, const Bytes& b) {  // four in a lane
  Pairs r;
  __builtin_memcpy(r.v, a.v, sizeof a.v);
  __builtin_memcpy(r.v + kLanes / 2, b.v, sizeof b.v);
  return r;
}
inline std::uint32_t join_words(std::int8_t a, std::int8_t b) {
  return static_cast<std::uint16_t>(a) | static_cast<std::uint32_t>(static_cast<std::uint16_t>(b)) << 16;
}
// Of the four bytes in a lane the first and the third, or the second and the fourth.
inline Pairs even_bytes(const Pairs& a) {
  Pairs r;
  for (int i = 0; i < kLanes; ++i)
    r.v[i] = join_words(static_cast<std::int8_t>(a.v[i]), static_cast<std::int8_t>(a.v[i] >> 16));
  return r;
}
inline Pairs odd_bytes(const Pairs& a) {
  Pairs r;
  for (int i = 0; i < kLanes; ++i)
    r.v[i] = join_words(static_cast<std::int8_t>(a.v[i] >> 8), static_cast<std::int8_t>(a.v[i] >> 24));
  return r;
}
inline void zip_bytes(const Bytes& a, const Bytes& b, Pairs (&out)[2]) {  // 32 pairs a[i], b[i]
  for (int i = 0; i < kLanes; ++i) {
    out[0].v[i] = join_words(a.v[i], b.v[i]);
    out[1].v[i] = join_words(a.v[i + kLanes], b.v[i + kLanes]);
  }
}
inline void store_words(std::uint32_t* p,
                        const Lanes& a) {  // pairs of neighbours; to nearest, ties to even; |a| < 2^15
  std::uint32_t whole[kLanes];
  for (int i = 0; i < kLanes; ++i) whole[i] = std::bit_cast<std::uint32_t>(a.v[i] + 0x1.8p23f);
  for (int i = 0; i < kLanes / 2; ++i) p[i] = (whole[2 * i] & 0xffffu) | whole[2 * i + 1] << 16;
}
// Of sixteen bytes.
inline std::int32_t sum_i8(const std::int8_t* p) {
  std::int32_t sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += p[i];
  return sum;
}
// The larger of numbers without a sign, by their bits: a NaN is larger than any number.
inline Lanes max_bits(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i)
    r.v[i] = std::bit_cast<std::uint32_t>(a.v[i]) > std::bit_cast<std::uint32_t>(b.v[i]) ? a.v[i] : b.v[i];
  return r;
}
inline float reduce_max_bits(const Lanes& a) {
  std::uint32_t m = 0;
  for (int i = 0; i < kLanes; ++i)
    m = std::bit_cast<std::uint32_t>(a.v[i]) > m ? std::bit_cast<std::uint32_t>(a.v[i]) : m;
  return std::bit_cast<float>(m);
}

}  // namespace
}  // namespace kvtide

#include "kernels/lanes_by_one.inl"
