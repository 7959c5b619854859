// elementwise.inl: the body of elementwise.h on Lanes; included once by each elementwise.<isa>.cpp.
#include "kernels/exp.inl"

namespace kvtide {
namespace {

// Runs body(pointer to 16 floats ...) over n elements; a short tail goes through zero-padded copies.
inline Lanes load_tail(const float* p, std::int64_t n) {
  float buffer[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return load(buffer);
}
inline void store_tail(float* p, const Lanes& a, std::int64_t n) {
  float buffer[kLanes];
  store(buffer, a);
  for (std::int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}

// x[i] = f(x[i], y[i])
template <class F>
inline void for_each(float* x, const float* y, std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, f(load(x + i), load(y + i)));
  if (i < n) store_tail(x + i, f(load_tail(x + i, n - i), load_tail(y + i, n - i)), n - i);
}

void rms_norm(const float* x, const float* weight, std::int64_t n, float epsilon, float* y) noexcept {
  Lanes sum = set1(0.0f);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = fma(load(x + i), load(x + i), sum);
  if (i < n) sum = fma(load_tail(x + i, n - i), load_tail(x + i, n - i), sum);
  const float mean = reduce_add(sum) / static_cast<float>(n);
  const Lanes factor = set1(1.0f / __builtin_sqrtf(mean + epsilon));
  for (i = 0; i + kLanes <= n; i += kLanes) store(y + i, mul(mul(load(x + i), factor), load(weight + i)));
  if (i < n)
    store_tail(y + i, mul(mul(load_tail(x + i, n - i), factor), load_tail(weight + i, n - i)), n - i);
}

void layer_norm(const float* x, const float* weight, const float* bias, std::int64_t n, float epsilon,
                float* y) noexcept {
  const auto at = [n](const float* p, std::int64_t i) {
    return i + kLanes <= n ? load(p + i) : load_tail(p + i, n - i);
  };
  Lanes sum = set1(0.0f);
  for (std::int64_t i = 0; i < n; i += kLanes) sum = add(sum, at(x, i));
  const Lanes mean = set1(reduce_add(sum) / static_cast<float>(n));
  // The lanes behind a short tail hold the mean itself, so that they add nothing.
  float tail[kLanes];
  const auto centred = [&](std::int64_t i) {
    if (i + kLanes <= n) return sub(load(x + i), mean);
    store(tail, mean);
    for (std::int64_t j = i; j < n; ++j) tail[j - i] = x[j];
    return sub(load(tail), mean);
  };
  Lanes squares = set1(0.0f);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const Lanes c = centred(i);
    squares = fma(c, c, squares);
  }
  const float variance = reduce_add(squares) / static_cast<float>(n);
  const Lanes factor = set1(1.0f / __builtin_sqrtf(variance + epsilon));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const Lanes result = fma(mul(centred(i), factor), at(weight, i), at(bias, i));
    if (i + kLanes <= n)
      store(y + i, result);
    else
      store_tail(y + i, result, n - i);
  }
}

void rope(float* x, const float* cosine, const float* sine, std::int64_t half) noexcept {
  for (std::int64_t i = 0; i < half; i += kLanes) {
    const std::int64_t n = half - i;
    const bool whole = n >= kLanes;
    const Lanes a = whole ? load(x + i) : load_tail(x + i, n);
    const Lanes b = whole ? load(x + half + i) : load_tail(x + half + i, n);
    const Lanes c = whole ? load(cosine + i) : load_tail(cosine + i, n);
    const Lanes s = whole ? load(sine + i) : load_tail(sine + i, n);
    const Lanes first = sub(mul(a, c), mul(b, s));
    const Lanes second = add(mul(b, c), mul(a, s));
    if (whole) {
      store(x + i, first);
      store(x + half + i, second);
    } else {
      store_tail(x + i, first, n);
      store_tail(x + half + i, second, n);
    }
  }
}

void silu_mul(float* gate, const float* up, std::int64_t n) noexcept {
  for_each(gate, up, n, [](Lanes g, Lanes u) {
    const Lanes denominator = add(set1(1.0f), exp(sub(set1(0.0f), g)));
    return mul(div(g, denominator), u);
  });
}

void sigmoid_mul(float* x, const float* gate, std::int64_t n) noexcept {
  for_each(x, gate, n, [](Lanes a, Lanes g) { return div(a, add(set1(1.0f), exp(sub(set1(0.0f), g)))); });
}

void convolve_silu(const ConvStep& step, float* y) noexcept {
  for (std::int64_t i = 0; i < step.n; i += kLanes) {
    const std::int64_t n = step.n - i;
    const auto at = [&](const float* p) { return n >= kLanes ? load(p + i) : load_tail(p + i, n); };
    Lanes sum = step.bias != nullptr ? at(step.bias) : set1(0.0f);
    for (int tap = 0; tap < step.count; ++tap) sum = fma(at(step.taps + tap * step.n), at(step.x[tap]), sum);
    const Lanes result = div(sum, add(set1(1.0f), exp(sub(set1(0.0f), sum))));
    if (n >= kLanes)
      store(y + i, result);
    else
      store_tail(y + i, result, n);
  }
}

// 0.5 x (1 + tanh(u)) = x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
inline Lanes gelu_of(Lanes x) {
  const Lanes inner = mul(x, fma(mul(x, x), set1(0.044715f), set1(1.0f)));
  const Lanes denominator = add(set1(1.0f), exp(mul(inner, set1(-2.0f * 0.79788456080286536f))));
  return div(x, denominator);
}

void gelu_mul(float* gate, const float* up, std::int64_t n) noexcept {
  for_each(gate, up, n, [](Lanes g, Lanes u) { return mul(gelu_of(g), u); });
}

// tanh(y) = 2 / (1 + exp(-2 y)) - 1
void soft_cap(float* x, float cap, std::int64_t n) noexcept {
  const Lanes inverse = set1(-2.0f / cap), limit = set1(cap), one = set1(1.0f), two = set1(2.0f);
  for_each(x, x, n,
           [&](Lanes a, Lanes) { return mul(sub(div(two, add(one, exp(mul(a, inverse)))), one), limit); });
}

void gelu(float* x, std::int64_t n) noexcept {
  for_each(x, x, n, [](Lanes a, Lanes) { return gelu_of(a); });
}

// Columns [first, first + Blocks * kLanes) of a delta_rule.
template <int Blocks>
inline void delta_columns(const DeltaStep& step, const float* before, float* after, float* out,
                          std::int64_t first) noexcept {
  const Lanes decay = set1(step.decay);
  Lanes sums[Blocks], deltas[Blocks];
  for (Lanes& sum : sums) sum = set1(0.0f);
  for (std::int64_t i = 0; i < step.keys; ++i) {
    const float* row = before + i * step.values + first;
    const Lanes key = set1(step.key[i]);
    for (int b = 0; b < Blocks; ++b) sums[b] = fma(mul(load(row + b * kLanes), decay), key, sums[b]);
  }
  for (int b = 0; b < Blocks; ++b) {
    deltas[b] = mul(sub(load(step.value + first + b * kLanes), sums[b]), set1(step.rate));
    sums[b] = set1(0.0f);
  }
  for (std::int64_t i = 0; i < step.keys; ++i) {
    const std::int64_t at = i * step.values + first;
    const Lanes key = set1(step.key[i]), query = set1(step.query[i]);
    for (int b = 0; b < Blocks; ++b) {
      const Lanes next = fma(key, deltas[b], mul(load(before + at + b * kLanes), decay));
      store(after + at + b * kLanes, next);
      sums[b] = fma(query, next, sums[b]);
    }
  }
  for (int b = 0; b < Blocks; ++b) store(out + first + b * kLanes, sums[b]);
}

// The same for the n columns behind the last whole lanes.
inline void delta_tail(const DeltaStep& step, const float* before, float* after, float* out,
                       std::int64_t first, std::int64_t n) noexcept {
  const Lanes decay = set1(step.decay);
  Lanes sum = set1(0.0f);
  for (std::int64_t i = 0; i < step.keys; ++i)
    sum = fma(mul(load_tail(before + i * step.values + first, n), decay), set1(step.key[i]), sum);
  const Lanes delta = mul(sub(load_tail(step.value + first, n), sum), set1(step.rate));
  sum = set1(0.0f);
  for (std::int64_t i = 0; i < step.keys; ++i) {
    const std::int64_t at = i * step.values + first;
    const Lanes next = fma(set1(step.key[i]), delta, mul(load_tail(before + at, n), decay));
    store_tail(after + at, next, n);
    sum = fma(set1(step.query[i]), next, sum);
  }
  store_tail(out + first, sum, n);
}

void delta_rule(const DeltaStep& step, const float* before, float* after, float* out) noexcept {
  std::int64_t first = 0;
  for (; first + 4 * kLanes <= step.values; first += 4 * kLanes)
    delta_columns<4>(step, before, after, out, first);
  for (; first + 2 * kLanes <= step.values; first += 2 * kLanes)
    delta_columns<2>(step, before, after, out, first);
  for (; first + kLanes <= step.values; first += kLanes) delta_columns<1>(step, before, after, out, first);
  if (first < step.values) delta_tail(step, before, after, out, first, step.values - first);
}

// Columns [first, first + Blocks * kLanes) of a selective_scan.
template <int Blocks>
inline void scan_columns(const ScanStep& step, const float* before, float* after, float* out,
                         std::int64_t first) noexcept {
  const Lanes decay = set1(step.decay), rate = set1(step.rate), skip = set1(step.skip);
  Lanes sums[Blocks], inputs[Blocks];
  for (Lanes& sum : sums) sum = set1(0.0f);
  for (int b = 0; b < Blocks; ++b) inputs[b] = mul(load(step.input + first + b * kLanes), rate);
  for (std::int64_t i = 0; i < step.keys; ++i) {
    const std::int64_t at = i * step.values + first;
    const Lanes write = set1(step.write[i]), read = set1(step.read[i]);
    for (int b = 0; b < Blocks; ++b) {
      const Lanes next = fma(write, inputs[b], mul(load(before + at + b * kLanes), decay));
      store(after + at + b * kLanes, next);
      sums[b] = fma(read, next, sums[b]);
    }
  }
  for (int b = 0; b < Blocks; ++b)
    store(out + first + b * kLanes, fma(load(step.input + first + b * kLanes), skip, sums[b]));
}

// The same for the n columns behind the last whole lanes.
inline void scan_tail(const ScanStep& step, const float* before, float* after, float* out, std::int64_t first,
                      std::int64_t n) noexcept {
  const Lanes decay = set1(step.decay), values = load_tail(step.input + first, n);
  const Lanes input = mul(values, set1(step.rate));
  Lanes sum = set1(0.0f);
  for (std::int64_t i = 0; i < step.keys; ++i) {
    const std::int64_t at = i * step.values + first;
    const Lanes next = fma(set1(step.write[i]), input, mul(load_tail(before + at, n), decay));
    store_tail(after + at, next, n);
    sum = fma(set1(step.read[i]), next, sum);
  }
  store_tail(out + first, fma(values, set1(step.skip), sum), n);
}

void selective_scan(const ScanStep& step, const float* before, float* after, float* out) noexcept {
  std::int64_t first = 0;
  for (; first + 4 * kLanes <= step.values; first += 4 * kLanes)
    scan_columns<4>(step, before, after, out, first);
  for (; first + 2 * kLanes <= step.values; first += 2 * kLanes)
    scan_columns<2>(step, before, after, out, first);
  for (; first + kLanes <= step.values; first += kLanes) scan_columns<1>(step, before, after, out, first);
  if (first < step.values) scan_tail(step, before, after, out, first, step.values - first);
}

void add(float* x, const float* y, std::int64_t n) noexcept {
  for_each(x, y, n, [](Lanes a, Lanes b) { return add(a, b); });
}

void scale(float* x, float factor, std::int64_t n) noexcept {
  for_each(x, x, n, [factor](Lanes a, Lanes) { return mul(a, set1(factor)); });
}

void to_f16(const float* x, std::int64_t n, std::uint16_t* y) noexcept {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, load(x + i));
  if (i == n) return;
  std::uint16_t tail[kLanes];
  store(tail, load_tail(x + i, n - i));
  for (std::int64_t j = 0; i + j < n; ++j) y[i + j] = tail[j];
}

// Sixteen elements from four `first` on; their sum.
inline std::int32_t quantize16(Lanes x, Lanes inverse, const QuantRow& out, std::int64_t first) {
  // min also turns the NaN that 0 * infinity gives into a number: the step carries the fault.
  const Lanes whole = round(max(min(mul(x, inverse), set1(127.0f)), set1(-127.0f)));
  std::int8_t bytes[kLanes];
  store_i8(bytes, whole);
  constexpr std::int64_t kRun = kRunBytes < kLanes ? kRunBytes : kLanes;
  for (std::int64_t i = 0; i < kLanes; i += kRun) __builtin_memcpy(out.four(first + i / 4), bytes + i, kRun);
  return sum_i8(bytes);
}

void quantize(const float* x, std::int64_t n, const QuantRow& out) noexcept {
  for (std::int64_t block = 0; block * 32 < n; ++block) {
    const Lanes a = load(x + block * 32), b = load(x + block * 32 + 16);
    const float highest = reduce_max_bits(max_bits(abs(a), abs(b)));  // a NaN if there is one
    const bool numbers = highest < __builtin_inff();
    const float step = numbers ? highest / 127.0f : __builtin_nanf("");
    // Below 2^-120 the inverse of the step would leave f32 and turn the block's zeros into 127: such numbers
    // become 0.
    const Lanes inverse = set1(numbers && highest > 0x1p-120f ? 127.0f / highest : 0.0f);
    const std::int32_t first = quantize16(a, inverse, out, block * 8),
                       second = quantize16(b, inverse, out, block * 8 + 4);
    out.d[block * out.stride] = step;
    out.d_sum[block * out.stride] = step * static_cast<float>(first + second);
    out.minus_sums[2 * block * out.stride] = -(first + second);
    out.minus_sums[(2 * block + 1) * out.stride] = -second;
  }
}

}  // namespace
}  // namespace kvtide
