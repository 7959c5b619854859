// matmul.i8mm.cpp: matrix products with the small matrix products of bytes that FEAT_I8MM adds: two rows of the panel
// by two rows of activations, eight elements at a time.
#include "kernels/matmul_kernel.h"
#include "kernels/matmul_strips.neon.h"

namespace kvtide {
namespace {

using DotRows = RowCounts<8, 4, 2, 1>;

// A register holds two rows of the panel by two of activations: (0, 0), (0, 1), (1, 0), (1, 1).
template <int V, int M>
struct ByPair {
  static constexpr int kParts = 2 * V, kColumns = M / 2;

  struct Weights {
    float32x4_t v[kParts];
  };
  static Weights weights(const float32x4_t (&w)[V]) {
    Weights r;
    each<V>([&](auto i) {
      r.v[2 * i] = vzip1q_f32(w[i], w[i]);
      r.v[2 * i + 1] = vzip2q_f32(w[i], w[i]);
    });
    return r;
  }
  template <int c>
  static uint64x2_t two(const Words<M>& x) {
    return vdupq_laneq_u64(vreinterpretq_u64_u32(x.v[c / 2]), c % 2);
  }
  template <int c>
  static float32x4_t mul(float32x4_t w, const Words<M>& x) {
    return vmulq_f32(w, vreinterpretq_f32_u64(two<c>(x)));
  }
  template <int c>
  static float32x4_t fma(float32x4_t acc, float32x4_t w, const Words<M>& x) {
    return vfmaq_f32(acc, w, vreinterpretq_f32_u64(two<c>(x)));
  }
  template <int c>
  static float32x4_t fnma(float32x4_t acc, float32x4_t w, const Words<M>& x) {
    return vfmsq_f32(acc, w, vreinterpretq_f32_u64(two<c>(x)));
  }
  template <int v, int m>
  static float32x4_t result(const float32x4_t (&acc)[kParts][kColumns]) {
    const float32x4_t a = acc[2 * v][m / 2], b = acc[2 * v + 1][m / 2];
    return m % 2 == 0 ? vuzp1q_f32(a, b) : vuzp2q_f32(a, b);
  }

  // Eight elements of two rows a register.
  static TwoGroups arrange(uint8x16_t a, uint8x16_t b) {
    const uint32x4_t x = vreinterpretq_u32_u8(a), y = vreinterpretq_u32_u8(b);
    return {{vreinterpretq_u8_u32(vzip1q_u32(x, y)), vreinterpretq_u8_u32(vzip2q_u32(x, y))}};
  }
  static TwoGroups fifth_bits(uint8x16_t four_bytes) {
    const auto spread = [&](std::uint64_t from) {  // four bits of each group, then the next four
      return sixteen_where(vqtbl1q_u8(four_bytes, vreinterpretq_u8_u64(vdupq_n_u64(from))),
                           0x0804020108040201u, 0x8040201080402010u);
    };
    return {{spread(0x0202020200000000u), spread(0x0303030301010101u)}};
  }
};

template <int V, int M>
struct Squares : ByPair<V, M> {
  using ByPair<V, M>::kParts, ByPair<V, M>::kColumns;
  int32x4_t sum[kParts][kColumns];

  void start() {
    each<kParts>([&](auto p) { each<kColumns>([&](auto c) { sum[p][c] = vdupq_n_s32(0); }); });
  }
  template <int kBits>
  void start(const Words<M>& minus) {
    each<kColumns>([&](auto c) {
      const int32x4_t both = vshlq_n_s32(vreinterpretq_s32_u64(ByPair<V, M>::template two<c>(minus)), kBits);
      each<kParts>([&](auto p) { sum[p][c] = both; });
    });
  }
  void add(const TwoGroups (&w)[V], const XView<M>& x, int pair) {
    const Words<M> first(x.q(2 * pair)), second(x.q(2 * pair + 1));
    each<kColumns>([&](auto c) {
      const uint32x4_t a = first.v[c / 2], b = second.v[c / 2];
      const int8x16_t two = vreinterpretq_s8_u32(c % 2 == 0 ? vzip1q_u32(a, b) : vzip2q_u32(a, b));
      each<kParts>(
          [&](auto p) { sum[p][c] = vmmlaq_s32(sum[p][c], vreinterpretq_s8_u8(w[p / 2].v[p % 2]), two); });
    });
  }
  template <int p, int c>
  float32x4_t total() const {
    return vcvtq_f32_s32(sum[p][c]);
  }
};

// One row of activations would leave half of every square empty.
template <int V, int M>
struct Products : Squares<V, M> {};
template <int V>
struct Products<V, 1> : Dots<V, 1> {};
template <int V, int M>
using ByteProducts = Products<V, M>;

}  // namespace
}  // namespace kvtide

// Behind the products on which it is written.
#include "kernels/matmul_strips.inl"

namespace kvtide {

extern constinit const MatmulRow kMatmulI8mm{tuned_row("i8mm")};

}  // namespace kvtide
