// matmul_strips.inl: the matrix products of Advanced SIMD: the steps along k and the walk over rows. Thirty-two short
// registers hold few sums, so up to eight rows of activations meet a strip of the panel, V of its four vectors of four
// rows, at a time. Included behind matmul_strips.neon.h and
//   Products<V, M>  the sums of a block: ByRow or what else says which register holds what, and
//                   start(), start<bits>(words): sums begin at 0, or at so many times 1 << bits
//                   add(weights, x, pair): products of groups 2 pair and 2 pair + 1; bytes of weights at most 63
//                   total<part, column>(): four sums as floats
//   ByteProducts<V, M>  the same for bytes with a sign
//   DotRows         how many rows are multiplied at once, the largest number first
namespace kvtide {
namespace {

template <int V, int M>
using Acc = float32x4_t[Products<V, M>::kParts][Products<V, M>::kColumns];

// body(part, column) for every register of results.
template <class Layout, class Body>
inline void each_result(Body body) {
  each<Layout::kParts>([&](auto p) { each<Layout::kColumns>([&](auto c) { body(p, c); }); });
}

// Adds the products of pairs of groups: group(pair, v).
template <int V, int M, class Sums, class Group>
inline void add_pair(Sums& sums, const XView<M>& x, int pair, Group group) {
  TwoGroups w[V];
  each<V>([&](auto v) { w[v] = group(pair, v); });
  sums.add(w, x, pair);
}
template <int V, int M, class Sums, class Group>
inline void add_block(Sums& sums, const XView<M>& x, Group group) {
  add_pair<V>(sums, x, 0, group);  // 0 and 2, 1 and 3 share bytes
  add_pair<V>(sums, x, 2, group);
  add_pair<V>(sums, x, 1, group);
  add_pair<V>(sums, x, 3, group);
}

// The numbers of V vectors as the results lie.
template <int V, int M, class Of>
inline auto weights_of(Of of) {
  float32x4_t w[V];
  each<V>([&](auto v) { w[v] = of(v); });
  return Products<V, M>::weights(w);
}
template <int V, int M>
inline auto halves(const Half* p, int first) {
  return weights_of<V, M>([&](int v) { return four_halves(p + 4 * (first + v)); });
}
template <int V, int M, class Byte>
inline auto scaled(const Half* p, const Byte* scale, int first) {
  return weights_of<V, M>([&](int v) {
    const int row = 4 * (first + v);
    return vmulq_f32(four_halves(p + row), vcvtq_f32_s32(four_bytes(scale + row)));
  });
}

// acc += sums * d * the rows' own steps.
template <int V, int M, class Sums>
inline void fold(const Sums& sums, const Half* d, int first, const XView<M>& x,
                                        Acc<V, M>& acc) {
  const auto w = halves<V, M>(d, first);
  const Words<M> step = x.d();
  each_result<Sums>([&](auto p, auto c) {
    acc[p][c] = vfmaq_f32(acc[p][c], sums.template total<p, c>(), Sums::template mul<c>(w.v[p], step));
  });
}

// Vector v of a pair of groups of quants: offset included.
template <class Layout>
inline TwoGroups nibble_pair(const std::uint8_t (*q)[64], int pair, int v) {
  const int raw = 2 * (pair % 2);
  const TwoGroups two = Layout::arrange(vld1q_u8(q[raw] + 16 * v), vld1q_u8(q[raw + 1] + 16 * v));
  return {{nibbles(two.v[0], pair >= 2), nibbles(two.v[1], pair >= 2)}};
}
template <class Layout>
inline TwoGroups five_bit_pair(const std::uint8_t (*q)[64], const std::uint8_t (*high)[8], int pair, int v) {
  std::uint16_t bits[2];
  for (int i = 0; i < 2; ++i) __builtin_memcpy(&bits[i], high[2 * pair + i] + 2 * v, 2);
  const uint16x8_t words = vsetq_lane_u16(bits[1], vdupq_n_u16(bits[0]), 1);
  const TwoGroups low = nibble_pair<Layout>(q, pair, v), top = Layout::fifth_bits(vreinterpretq_u8_u16(words));
  return {{vorrq_u8(low.v[0], top.v[0]), vorrq_u8(low.v[1], top.v[1])}};
}
template <class Layout>
inline TwoGroups six_bit_pair(const PanelQ6K::Sub& sub, int pair, int v) {
  const uint8x16_t raw = vld1q_u8(sub.high[pair / 2] + 16 * v);
  const auto group = [&](int i) {
    return vorrq_u8(nibbles(vld1q_u8(sub.q[2 * (pair % 2) + i] + 16 * v), pair >= 2),
                    two_bits(raw, 2 * (pair % 2) + i));
  };
  return Layout::arrange(group(0), group(1));
}

// A block of 32 elements whose quants are 1 << kOffsetBits too large.
template <int kOffsetBits, int V, int M, class Group>
inline void fold_block(const Half* d, int first, const XView<M>& x, Acc<V, M>& acc,
                                              Group group) {
  Products<V, M> sums;
  sums.template start<kOffsetBits>(x.minus_sum());
  add_block<V>(sums, x, group);
  fold<V>(sums, d, first, x, acc);
}

struct Q4_0 {
  using Panel = PanelQ4_0;
  static constexpr int kBlock = 32;
  template <int V, int M>
  static void step(const Panel& p, int, int first, const XView<M>& x, Acc<V, M>& acc) {
    fold_block<3, V>(p.d, first, x, acc,
                     [&](int pair, int v) { return nibble_pair<Products<V, M>>(p.q, pair, first + v); });
  }
};

struct Q4_1 {
  using Panel = PanelQ4_1;
  static constexpr int kBlock = 32;
  template <int V, int M>
  static void step(const Panel& p, int, int first, const XView<M>& x, Acc<V, M>& acc) {
    using Sums = Products<V, M>;
    Sums sums;
    sums.start();
    add_block<V>(sums, x, [&](int pair, int v) { return nibble_pair<Sums>(p.q, pair, first + v); });
    fold<V>(sums, p.d, first, x, acc);
    const auto offset = halves<V, M>(p.m, first);
    const Words<M> sum = x.d_sum();
    each_result<Sums>([&](auto i, auto c) { acc[i][c] = Sums::template fma<c>(acc[i][c], offset.v[i], sum); });
  }
};

struct Q5_0 {
  using Panel = PanelQ5_0;
  static constexpr int kBlock = 32;
  template <int V, int M>
  static void step(const Panel& p, int, int first, const XView<M>& x, Acc<V, M>& acc) {
    fold_block<4, V>(p.d, first, x, acc, [&](int pair, int v) {
      return five_bit_pair<Products<V, M>>(p.q, p.high, pair, first + v);
    });
  }
};

struct Q8_0 {
  using Panel = PanelQ8_0;
  static constexpr int kBlock = 32;
  template <int V, int M>
  static void step(const Panel& p, int, int first, const XView<M>& x, Acc<V, M>& acc) {
    ByteProducts<V, M> sums;
    sums.start();
    add_block<V>(sums, x, [&](int pair, int v) {
      const auto at = [&](int g) { return vreinterpretq_u8_s8(vld1q_s8(p.q[2 * pair + g] + 16 * (first + v))); };
      return Products<V, M>::arrange(at(0), at(1));
    });
    fold<V>(sums, p.d, first, x, acc);
  }
};

// A sub-block of q4_k or q5_k: a scale and a min of its own.
template <int V, int M, class Panel, class Group>
inline void fold_with_min(const Panel& p, const typename Panel::Sub& sub, int first,
                                                 const XView<M>& x, Acc<V, M>& acc, Group group) {
  using Sums = Products<V, M>;
  Sums sums;
  sums.start();
  add_block<V>(sums, x, group);
  const auto scale = scaled<V, M>(p.d, sub.scale, first), min = scaled<V, M>(p.dmin, sub.min, first);
  const Words<M> step = x.d(), sum = x.d_sum();
  each_result<Sums>([&](auto i, auto c) {
    const float32x4_t product = vmulq_f32(sums.template total<i, c>(), scale.v[i]);
    acc[i][c] = Sums::template fnma<c>(Sums::template fma<c>(acc[i][c], product, step), min.v[i], sum);
  });
}

struct Q4K {
  using Panel = PanelQ4K;
  static constexpr int kBlock = 256;
  template <int V, int M>
  static void step(const Panel& p, int s, int first, const XView<M>& x, Acc<V, M>& acc) {
    fold_with_min<V>(p, p.sub[s], first, x, acc, [&](int pair, int v) {
      return nibble_pair<Products<V, M>>(p.sub[s].q, pair, first + v);
    });
  }
};

struct Q5K {
  using Panel = PanelQ5K;
  static constexpr int kBlock = 256;
  template <int V, int M>
  static void step(const Panel& p, int s, int first, const XView<M>& x, Acc<V, M>& acc) {
    fold_with_min<V>(p, p.sub[s], first, x, acc, [&](int pair, int v) {
      return five_bit_pair<Products<V, M>>(p.sub[s].q, p.sub[s].high, pair, first + v);
    });
  }
};

struct Q6K {
  using Panel = PanelQ6K;
  static constexpr int kBlock = 256;
  template <int V, int M>
  static void step(const Panel& p, int s, int first, const XView<M>& x, Acc<V, M>& acc) {
    using Sums = Products<V, M>;
    const auto& sub = p.sub[s];
    Acc<V, M> total;
    each<2>([&](auto h) {
      Sums sums;
      sums.template start<5>(x.minus_sum16(h));
      const auto group = [&](int pair, int v) { return six_bit_pair<Sums>(sub, pair, first + v); };
      add_pair<V>(sums, x, 2 * h, group);
      add_pair<V>(sums, x, 2 * h + 1, group);
      const auto scale = scaled<V, M>(p.d, sub.scale[h], first);
      each_result<Sums>([&](auto i, auto c) {
        const float32x4_t sum = sums.template total<i, c>();
        total[i][c] = h == 0 ? vmulq_f32(sum, scale.v[i]) : vfmaq_f32(total[i][c], sum, scale.v[i]);
      });
    });
    const Words<M> step = x.d();
    each_result<Sums>([&](auto i, auto c) { acc[i][c] = Sums::template fma<c>(acc[i][c], total[i][c], step); });
  }
};

// Columns [first, last) of one output row.
inline void store_four(float* y, float32x4_t a, int columns) {
  if (columns >= 4) return vst1q_f32(y, a);
  float all[4];
  vst1q_f32(all, a);
  for (int i = 0; i < columns; ++i) y[i] = all[i];
}

// Several strips walk 256 elements, then the next: what they read of the panel and the activations stays near.
// Flat: numbers that instructions want as constants come through calls.
template <class Type, int M>
[[gnu::flatten]] inline void tile(const typename Type::Panel* panel, const QuantRows& rows, const PanelOut& out, std::int64_t row) {
  constexpr int V = M == 8 ? 1 : M == 4 ? 2 : 4;
  constexpr int kSubs = Type::kBlock / 32;
  Acc<V, M> all[4 / V] = {};
  XView<M> x{rows.row(row)};
  const std::int64_t blocks = rows.k / 32;
  for (std::int64_t begin = 0; begin < blocks; begin += 8) {
    const std::int64_t end = begin + 8 < blocks ? begin + 8 : blocks;
    for (int strip = 0; strip < 4 / V; ++strip) {
      Acc<V, M> acc;
      each_result<Products<V, M>>([&](auto i, auto c) { acc[i][c] = all[strip][i][c]; });
      XView<M> at = x;
      for (std::int64_t b = begin; b < end; ++b, at.skip(1))
        Type::template step<V>(panel[b / kSubs], static_cast<int>(b % kSubs), strip * V, at, acc);
      each_result<Products<V, M>>([&](auto i, auto c) { all[strip][i][c] = acc[i][c]; });
    }
    x.skip(8);
  }
  for (int strip = 0; strip < 4 / V; ++strip)
    each<V>([&](auto v) {
      each<M>([&](auto m) {
        const int column = 4 * (strip * V + v);
        store_four(out.y + (row + m) * out.stride + column, Products<V, M>::template result<v, m>(all[strip]),
                   out.columns - column);
      });
    });
}

template <class Type, int kFirst, int... kRest>
inline void dot_rows(const typename Type::Panel* panel, const QuantRows& rows, const PanelOut& out,
                     std::int64_t row, RowCounts<kFirst, kRest...>) {
  for (; row + kFirst <= rows.rows; row += kFirst) tile<Type, kFirst>(panel, rows, out, row);
  if constexpr (sizeof...(kRest) > 0) dot_rows<Type>(panel, rows, out, row, RowCounts<kRest...>());
}

template <class Type>
void dot_panel(const std::byte* panel, const QuantRows& rows, const PanelOut& out) noexcept {
  dot_rows<Type>(reinterpret_cast<const typename Type::Panel*>(panel), rows, out, 0, DotRows());
}

}  // namespace
}  // namespace kvtide

#include "kernels/matmul_decode.inl"
