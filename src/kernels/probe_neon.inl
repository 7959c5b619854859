// probe_neon.inl: limits of Advanced SIMD. Included by probe.neon.cpp, probe.dotprod.cpp and probe.i8mm.cpp behind
// dot(sum, weights, activations), kDotProducts of bytes an instruction or two.
namespace kvtide {
namespace {

constexpr int kChains = 16;  // latency of an FMA (4 cycles) times four units

std::uint64_t read(const std::byte* data, std::size_t bytes) noexcept {
  uint64x2_t sum[4] = {};
  const auto* words = reinterpret_cast<const std::uint64_t*>(data);
  for (std::size_t at = 0; at < bytes / 8; at += 8)
    for (std::size_t i = 0; i < 4; ++i) sum[i] = veorq_u64(sum[i], vld1q_u64(words + at + 2 * i));
  const uint64x2_t all = veorq_u64(veorq_u64(sum[0], sum[1]), veorq_u64(sum[2], sum[3]));
  return vgetq_lane_u64(all, 0) ^ vgetq_lane_u64(all, 1);
}

float fma_rounds(std::int64_t rounds) noexcept {
  const float32x4_t factor = vdupq_n_f32(0.999f), rest = vdupq_n_f32(0.001f);
  float32x4_t sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = vdupq_n_f32(1.0f + static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) sum[i] = vfmaq_f32(sum[i], factor, rest);
  for (int i = 1; i < kChains; ++i) sum[0] = vaddq_f32(sum[0], sum[i]);
  return vgetq_lane_f32(sum[0], 0);
}

std::int32_t dot_rounds(std::int64_t rounds) noexcept {
  int8x16_t weights = vdupq_n_s8(3);
  const int8x16_t activations = vdupq_n_s8(-5);
  int32x4_t sum[kChains] = {};
  for (std::int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+w"(weights));  // could have changed: equal chains are not computed once for all
      sum[i] = dot(sum[i], weights, activations);
    }
  for (int i = 1; i < kChains; ++i) sum[0] = vaddq_s32(sum[0], sum[i]);
  return vgetq_lane_s32(sum[0], 0);
}

constexpr ProbeRow probe_row(const char* isa) {
  return {.isa = isa,
          .read = &read,
          .fma = &fma_rounds,
          .fma_flop = kChains * 4 * 2,
          .dot = &dot_rounds,
          .dot_op = kChains * kDotProducts * 2};
}

}  // namespace
}  // namespace kvtide
