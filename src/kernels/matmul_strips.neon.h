// matmul_strips.neon.h: what a strip of a panel, V vectors of four rows, and M rows of activations have in registers:
// the activations, and results with a register for four rows of the panel and one of activations.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/matmul_lanes.neon.h"
#include "kernels/unroll.h"

namespace kvtide {
namespace {

// M numbers of four bytes that lie side by side: number m in lane m % 4 of register m / 4.
template <int M>
struct Words {
  uint32x4_t v[(M + 3) / 4];

  explicit Words(const void* p) {
    const auto* words = static_cast<const std::uint32_t*>(p);
    if constexpr (M == 1)
      v[0] = vld1q_dup_u32(words);
    else if constexpr (M == 2)
      v[0] = vcombine_u32(vld1_u32(words), vld1_u32(words));
    else
      each<M / 4>([&](auto i) { v[i] = vld1q_u32(words + 4 * i); });
  }
  float32x4_t floats(int i) const { return vreinterpretq_f32_u32(v[i]); }
  int32x4_t ints(int i) const { return vreinterpretq_s32_u32(v[i]); }
  int8x16_t bytes(int i) const { return vreinterpretq_s8_u32(v[i]); }
};

// M rows of a group of activations, at one block.
template <int M>
struct XView {
  QuantRow at;
  std::int64_t stride() const { return M == kGroupRows ? kGroupRows : at.stride; }

  const std::int8_t* q(int entry) const { return at.q + entry * stride() * 4; }
  Words<M> d() const { return Words<M>(at.d); }
  Words<M> d_sum() const { return Words<M>(at.d_sum); }
  // Minus the sum of the block, or of a half of it.
  Words<M> minus_sum() const { return Words<M>(at.minus_sums); }
  Words<M> minus_sum16(int half) const {
    const Words<M> second(at.minus_sums + stride());
    if (half == 1) return second;
    Words<M> first = minus_sum();
    each<(M + 3) / 4>([&](auto i) { first.v[i] = vsubq_u32(first.v[i], second.v[i]); });
    return first;
  }

  void skip(std::int64_t blocks) {
    at.q += 32 * blocks * stride();
    at.d += blocks * stride();
    at.d_sum += blocks * stride();
    at.minus_sums += 2 * blocks * stride();
  }
};

// Bytes of two neighbouring groups of four rows, as products take them.
struct TwoGroups {
  uint8x16_t v[2];
};

template <int V, int M>
struct ByRow {
  static constexpr int kParts = V, kColumns = M;

  struct Weights {
    float32x4_t v[kParts];
  };
  static Weights weights(const float32x4_t (&w)[V]) {
    Weights r;
    each<V>([&](auto i) { r.v[i] = w[i]; });
    return r;
  }
  // w times column c of x, added to acc, taken off.
  template <int c>
  static float32x4_t mul(float32x4_t w, const Words<M>& x) {
    return vmulq_laneq_f32(w, x.floats(c / 4), c % 4);
  }
  template <int c>
  static float32x4_t fma(float32x4_t acc, float32x4_t w, const Words<M>& x) {
    return vfmaq_laneq_f32(acc, w, x.floats(c / 4), c % 4);
  }
  template <int c>
  static float32x4_t fnma(float32x4_t acc, float32x4_t w, const Words<M>& x) {
    return vfmsq_laneq_f32(acc, w, x.floats(c / 4), c % 4);
  }
  // The results of vector v and row m.
  template <int v, int m>
  static float32x4_t result(const float32x4_t (&acc)[kParts][kColumns]) {
    return acc[v][m];
  }

  static TwoGroups arrange(uint8x16_t a, uint8x16_t b) { return {{a, b}}; }
  // 16 for every fifth bit of two groups, from the two bytes of each.
  static TwoGroups fifth_bits(uint8x16_t four_bytes) {
    constexpr std::uint64_t kBits = 0x8040201008040201u, kNext = 0x0101010101010101u;
    const auto spread = [&](std::uint64_t low, std::uint64_t high) {
      const uint8x16_t from = vreinterpretq_u8_u64(vcombine_u64(vdup_n_u64(low), vdup_n_u64(high)));
      return sixteen_where(vqtbl1q_u8(four_bytes, from), kBits, kBits);
    };
    return {{spread(0, kNext), spread(2 * kNext, 3 * kNext)}};
  }
};

#ifdef __ARM_FEATURE_DOTPROD
// Sums of a block by instructions that add four products of bytes to each of four integers.
template <int V, int M>
struct Dots : ByRow<V, M> {
  int32x4_t sum[V][M];

  void start() {
    each<V>([&](auto v) { each<M>([&](auto m) { sum[v][m] = vdupq_n_s32(0); }); });
  }
  template <int kBits>
  void start(const Words<M>& minus) {  // so many times 1 << kBits
    each<M>([&](auto m) {
      const int32x4_t four = vshlq_n_s32(minus.ints(m / 4), kBits);
      each<V>([&](auto v) { sum[v][m] = vdupq_laneq_s32(four, m % 4); });
    });
  }
  void add(const TwoGroups (&w)[V], const XView<M>& x, int pair) {
    each<2>([&](auto g) {
      const Words<M> four(x.q(2 * pair + g));
      each<V>([&](auto v) {
        each<M>([&](auto m) {
          sum[v][m] = vdotq_laneq_s32(sum[v][m], vreinterpretq_s8_u8(w[v].v[g]), four.bytes(m / 4), m % 4);
        });
      });
    });
  }
  template <int v, int m>
  float32x4_t total() const {
    return vcvtq_f32_s32(sum[v][m]);
  }
};
#endif

}  // namespace
}  // namespace kvtide
