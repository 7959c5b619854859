// dense_rounding.inl: elements that are rounded in turn, each of which makes up for those before it, on Lanes. Included by
// dense.inl behind four_bits.inl. What it is for: state/procedural/key_rounding.h.
namespace kvtide {
namespace {

// Columns are worked on by whole vectors: what lies beyond the diagonal is not used any more.
void factor(float* h, std::int64_t n, float* minus_u) noexcept {
  for (std::int64_t i = 0; i < n * n; i += kLanes) store(minus_u + i, set1(0.0f));
  for (std::int64_t k = n; k-- > 1;) {
    const float* last = h + k * n;
    const float inverse = 1.0f / last[k];
    for (std::int64_t i = 0; i < k; ++i) {
      const float times = -(last[i] * inverse);
      minus_u[i * n + k] = times;
      float* row = h + i * n;
      for (std::int64_t j = 0; j <= i; j += kLanes)
        store(row + j, fma(set1(times), load(last + j), load(row + j)));
    }
  }
}

void round_in_turn(const float* x, std::int64_t n, const float* scales, const float* inverses,
                   const float* minus_u, float* codes) noexcept {
  for (std::int64_t k = 0; k < n; ++k) store(codes + k * kLanes, load(x + k * kLanes));
  for (std::int64_t k = 0; k < n; ++k) {
    const Lanes scale = load(scales + k / 32 * kLanes), inverse = load(inverses + k / 32 * kLanes);
    // Instructions give zeros of either sign.
    const Lanes code = add(to_nibbles(mul(load(codes + k * kLanes), inverse)), set1(0.0f));
    const Lanes off = sub(mul(code, scale), load(x + k * kLanes));
    store(codes + k * kLanes, code);
    for (std::int64_t j = k + 1; j < n; ++j)
      store(codes + j * kLanes, fma(off, set1(minus_u[k * n + j]), load(codes + j * kLanes)));
  }
}

}  // namespace
}  // namespace kvtide
