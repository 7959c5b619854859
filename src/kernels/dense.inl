// dense.inl: the body of dense.h on Lanes; included once by each dense.<isa>.cpp.
#include "kernels/dense_rows.inl"
#include "kernels/dense_rounding.inl"
#include "kernels/exp.inl"

namespace kvtide {
namespace {

void dots(const float* q, std::int64_t m, const float* k, std::int64_t n, std::int64_t dim, float scale,
          float* out) noexcept {
  const int width = static_cast<int>(dim);
  const Lanes factor = set1(scale);
  // Sixteen keys stay in the nearest cache while all queries pass.
  for (std::int64_t j = 0; j < n; j += kLanes)
    for (std::int64_t i = 0; i < m; ++i)
      store(out + i * n + j, mul(dot16(q + i * dim, k + j * dim, width, width), factor));
}

template <int Q, int V>
inline void mix_slice(const float* p, std::int64_t n, const float* v, std::int64_t dim, float* out) {
  Lanes sum[Q][V];
  for (int i = 0; i < Q; ++i)
    for (int c = 0; c < V; ++c) sum[i][c] = set1(0.0f);
  for (std::int64_t j = 0; j < n; ++j) {
    Lanes value[V];
    for (int c = 0; c < V; ++c) value[c] = load(v + j * dim + c * kLanes);
    for (int i = 0; i < Q; ++i) {
      const Lanes weight = set1(p[i * n + j]);
      for (int c = 0; c < V; ++c) sum[i][c] = fma(weight, value[c], sum[i][c]);
    }
  }
  for (int i = 0; i < Q; ++i)
    for (int c = 0; c < V; ++c) store(out + i * dim + c * kLanes, sum[i][c]);
}

template <int Q>
inline void mix_queries(const float* p, std::int64_t n, const float* v, std::int64_t dim, float* out) {
  std::int64_t d = 0;
  for (; d + kMixVectors * kLanes <= dim; d += kMixVectors * kLanes)
    mix_slice<Q, kMixVectors>(p, n, v + d, dim, out + d);
  if constexpr (kMixVectors > 2)
    for (; d + 2 * kLanes <= dim; d += 2 * kLanes) mix_slice<Q, 2>(p, n, v + d, dim, out + d);
  for (; d < dim; d += kLanes) mix_slice<Q, 1>(p, n, v + d, dim, out + d);
}

// Of fewer queries than go together.
template <int Q = kMixQueries - 1>
inline void mix_rest(const float* p, std::int64_t m, std::int64_t n, const float* v, std::int64_t dim,
                     float* out) {
  if constexpr (Q > 0) {
    if (m == Q)
      mix_queries<Q>(p, n, v, dim, out);
    else
      mix_rest<Q - 1>(p, m, n, v, dim, out);
  }
}

void mix(const float* p, std::int64_t m, std::int64_t n, const float* v, std::int64_t dim,
         float* out) noexcept {
  std::int64_t i = 0;
  for (; i + kMixQueries <= m; i += kMixQueries)
    mix_queries<kMixQueries>(p + i * n, n, v, dim, out + i * dim);
  mix_rest(p + i * n, m - i, n, v, dim, out + i * dim);
}

float soften(float* x, std::int64_t n) noexcept {
  Lanes top = load(x);
  for (std::int64_t j = kLanes; j < n; j += kLanes) top = max(load(x + j), top);
  const float highest = reduce_max(top);
  if (!(highest > -__builtin_inff())) {
    for (std::int64_t j = 0; j < n; ++j) x[j] = 0.0f;
    return highest;
  }
  Lanes sum = set1(0.0f);
  for (std::int64_t j = 0; j < n; j += kLanes) {
    const Lanes e = exp(sub(load(x + j), set1(highest)));
    store(x + j, e);
    sum = add(sum, e);
  }
  const float total = reduce_add(sum);
  const Lanes inverse = set1(1.0f / total);
  for (std::int64_t j = 0; j < n; j += kLanes) store(x + j, mul(load(x + j), inverse));
  return highest + __builtin_logf(total);
}

float weigh(const float* masses, const float* times, std::int64_t n, float* shares) noexcept {
  Lanes sum = set1(0.0f);
  for (std::int64_t j = 0; j < n; j += kLanes) {
    const Lanes mass = mul(load(masses + j), load(times + j));
    store(shares + j, mass);
    sum = add(sum, mass);
  }
  const float total = reduce_add(sum), some = total < __FLT_MIN__ ? __FLT_MIN__ : total;
  const Lanes inverse = set1(1.0f / some);
  for (std::int64_t j = 0; j < n; j += kLanes) store(shares + j, mul(load(shares + j), inverse));
  return some;
}

void add_squares(const float* x, float weight, std::int64_t n, float* sum) noexcept {
  const Lanes w = set1(weight);
  for (std::int64_t j = 0; j < n; j += kLanes) {
    const Lanes term = mul(load(x + j), w);
    store(sum + j, fma(term, term, load(sum + j)));
  }
}

void add_losses(const float* p, float weight, const float* vv, float oo, const float* vo, std::int64_t n,
                float* sum) noexcept {
  const Lanes w = set1(weight), o = set1(oo), minus2 = set1(-2.0f), zero = set1(0.0f);
  for (std::int64_t j = 0; j < n; j += kLanes) {
    const Lanes term = mul(load(p + j), w);
    const Lanes distance = max(fma(load(vo + j), minus2, add(load(vv + j), o)), zero);
    store(sum + j, fma(mul(term, term), distance, load(sum + j)));
  }
}

void widen(const std::uint16_t* x, std::int64_t n, float* y) noexcept {
  for (std::int64_t i = 0; i < n; i += kLanes) store(y + i, load(x + i));
}

}  // namespace
}  // namespace kvtide
