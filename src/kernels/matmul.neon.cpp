// matmul.neon.cpp: matrix products with what every AArch64 processor has: products of bytes as 16-bit integers.
#include "kernels/matmul_kernel.h"
#include "kernels/matmul_strips.neon.h"

namespace kvtide {
namespace {

using DotRows = RowCounts<4, 2, 1>;

// The four bytes of row m, four times.
template <int m, int M>
inline int8x16_t everywhere(const Words<M>& words) {
  return vreinterpretq_s8_u32(vdupq_laneq_u32(words.v[m / 4], m % 4));
}

// Sums of 16 bits hold a block of quants: eight groups of at most 31 x 127, or four of at most 63 x 127.
template <int V, int M>
struct Products : ByRow<V, M> {
  int16x8_t low[V][M], high[V][M];  // of rows 0 and 1, 2 and 3: four sums each
  int32x4_t rest[M];

  void start() {
    each<M>([&](auto m) { rest[m] = vdupq_n_s32(0); });
    each<V>([&](auto v) { each<M>([&](auto m) { low[v][m] = high[v][m] = vdupq_n_s16(0); }); });
  }
  template <int kBits>
  void start(const Words<M>& minus) {
    start();
    each<M>([&](auto m) { rest[m] = vdupq_laneq_s32(vshlq_n_s32(minus.ints(m / 4), kBits), m % 4); });
  }
  void add(const TwoGroups (&w)[V], const XView<M>& x, int pair) {
    each<2>([&](auto g) {
      const Words<M> words(x.q(2 * pair + g));
      each<M>([&](auto m) {
        const int8x16_t four = everywhere<m>(words);
        each<V>([&](auto v) {
          const int8x16_t bytes = vreinterpretq_s8_u8(w[v].v[g]);
          low[v][m] = vmlal_s8(low[v][m], vget_low_s8(bytes), vget_low_s8(four));
          high[v][m] = vmlal_high_s8(high[v][m], bytes, four);
        });
      });
    });
  }
  template <int v, int m>
  float32x4_t total() const {
    const int32x4_t sum = vpaddq_s32(vpaddlq_s16(low[v][m]), vpaddlq_s16(high[v][m]));
    return vcvtq_f32_s32(vaddq_s32(sum, rest[m]));
  }
};

// Products of bytes up to 128 x 127: two fit into 16 bits.
template <int V, int M>
struct ByteProducts : ByRow<V, M> {
  int32x4_t low[V][M], high[V][M];

  void start() {
    each<V>([&](auto v) { each<M>([&](auto m) { low[v][m] = high[v][m] = vdupq_n_s32(0); }); });
  }
  void add(const TwoGroups (&w)[V], const XView<M>& x, int pair) {
    each<M>([&](auto m) {
      const int8x16_t a = Words<1>(x.q(2 * pair) + 4 * m).bytes(0),
                      b = Words<1>(x.q(2 * pair + 1) + 4 * m).bytes(0);
      each<V>([&](auto v) {
        const int8x16_t first = vreinterpretq_s8_u8(w[v].v[0]), second = vreinterpretq_s8_u8(w[v].v[1]);
        const int16x8_t products = vmull_s8(vget_low_s8(first), vget_low_s8(a));
        low[v][m] = vpadalq_s16(low[v][m], vmlal_s8(products, vget_low_s8(second), vget_low_s8(b)));
        high[v][m] = vpadalq_s16(high[v][m], vmlal_high_s8(vmull_high_s8(first, a), second, b));
      });
    });
  }
  template <int v, int m>
  float32x4_t total() const {
    return vcvtq_f32_s32(vpaddq_s32(low[v][m], high[v][m]));
  }
};

}  // namespace
}  // namespace kvtide

// Behind the products on which it is written.
#include "kernels/matmul_strips.inl"

namespace kvtide {

extern constinit const MatmulRow kMatmulNeon{tuned_row("neon")};

}  // namespace kvtide
