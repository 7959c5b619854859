// attend_spread.inl: queries as the Hadamard transforms of keys meet them, on Lanes; included once by each
// attend.<isa>.cpp after attend.inl. The arithmetic is that of hadamard.h, bit for bit.
namespace kvtide {
namespace {

// Sums and differences of lanes i and i + Step.
template <int Step>
inline Lanes butterfly(Lanes a) {
  alignas(64) float sign[kLanes];
  for (int i = 0; i < kLanes; ++i) sign[i] = (i & Step) != 0 ? -1.0f : 1.0f;
  return fma(a, load(sign), swap<Step>(a));
}

// x: [Vectors * kLanes], all of it in registers: a power of two.
template <int Vectors>
inline void transform_part(float* x) {
  Lanes v[Vectors];
KVTIDE_UNROLL(16)
  for (int i = 0; i < Vectors; ++i)
    v[i] = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(load(x + i * kLanes)))));
KVTIDE_UNROLL(4)
  for (int step = 1; step < Vectors; step *= 2)
KVTIDE_UNROLL(16)
    for (int i = 0; i < Vectors; ++i)
      if ((i & step) == 0) {
        const Lanes a = v[i], b = v[i + step];
        v[i] = add(a, b);
        v[i + step] = sub(a, b);
      }
  const Lanes scale = set1(1.0f / __builtin_sqrtf(static_cast<float>(Vectors * kLanes)));
KVTIDE_UNROLL(16)
  for (int i = 0; i < Vectors; ++i) store(x + i * kLanes, mul(v[i], scale));
}

// x: [n], n a multiple of 32.
inline void transform(float* x, int n) {
  const int part = n & -n;
  if (n == 256) return transform_part<256 / kLanes>(x);
  if (n == 128) return transform_part<128 / kLanes>(x);
  if (n == 64) return transform_part<64 / kLanes>(x);
  for (int d = 0; d < n; d += kLanes)
    store(x + d, butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(load(x + d))))));
  for (int step = kLanes; step < part; step *= 2)
    for (int i = 0; i < n; i += 2 * step)
      for (int d = i; d < i + step; d += kLanes) {
        const Lanes a = load(x + d), b = load(x + d + step);
        store(x + d, add(a, b));
        store(x + d + step, sub(a, b));
      }
  const Lanes scale = set1(1.0f / __builtin_sqrtf(static_cast<float>(part)));
  for (int d = 0; d < n; d += kLanes) store(x + d, mul(load(x + d), scale));
}

// Turns pairs (i, i + pairs) the other way.
inline void turn_back(float* x, const float* rotation, int pairs) {
  const float *cosine = rotation, *sine = rotation + pairs;
  int i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    const Lanes a = load(x + i), b = load(x + pairs + i), c = load(cosine + i), s = load(sine + i);
    store(x + i, add(mul(a, c), mul(b, s)));
    store(x + pairs + i, sub(mul(b, c), mul(a, s)));
  }
  for (; i < pairs; ++i) {
    const float a = x[i], b = x[pairs + i];
    x[i] = a * cosine[i] + b * sine[i];
    x[pairs + i] = b * cosine[i] - a * sine[i];
  }
}

void spread_rows(int count, int padded_dim, int head_dim, const float* rotation, int pairs, float* rows) noexcept {
  for (int i = 0; i < count; ++i) {
    float* row = rows + i * padded_dim;
    if (rotation != nullptr) turn_back(row, rotation, pairs);
    transform(row, head_dim);
  }
}

}  // namespace
}  // namespace kvtide
