// matmul_decode.inl: panels to f32, the product of f32 panels, and the table's row. Included behind dot_panel<Type>, the
// types with their Panel and kBlock, and what it is written on:
//   Float16, Int16  sixteen floats or 32-bit integers; lane r belongs to row r of the panel
//   load, store, half16, bf16_16, set1, mul, add, subtract, fma, to_float, bytes_to_int
//   nibble_group, five_bit_group, six_bit_group, byte_group  quants of four elements, a byte each
//   byte_of         byte c of every lane less the offset, as float
//   RowCounts, GemmRows  how many rows are multiplied at once, the largest number first
namespace kvtide {
namespace {

// Stores the four elements of a group for all rows: out[c * 16 + row] = value(byte c of the row, as float).
template <class Value>
inline void spread(Int16 group, int offset, float* out, Value value) {
  for (int c = 0; c < 4; ++c) store(out + c * kPanelRows, value(byte_of(group, c, offset)));
}

// Decodes 32-element blocks [k0, k1): block(panel block, sub, out of 8 groups).
template <class Type, class Block>
inline void decode(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out, Block block) {
  for (std::int64_t b = k0 / 32; b < k1 / 32; ++b, out += 32 * kPanelRows)
    block(reinterpret_cast<const typename Type::Panel*>(panel)[b * 32 / Type::kBlock],
          static_cast<int>(b % (Type::kBlock / 32)), out);
}

void decode_f16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const Half*>(panel);
  for (std::int64_t k = k0; k < k1; ++k, out += kPanelRows) store(out, half16(in + k * kPanelRows));
}
void decode_bf16(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  const auto* in = reinterpret_cast<const std::uint16_t*>(panel);
  for (std::int64_t k = k0; k < k1; ++k, out += kPanelRows) store(out, bf16_16(in + k * kPanelRows));
}
void decode_q4_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q4_0>(panel, k0, k1, out, [](const PanelQ4_0& p, int, float* to) {
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g)
      spread(nibble_group(p.q, g), 8, to + 64 * g, [&](Float16 q) { return mul(d, q); });
  });
}
void decode_q4_1(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q4_1>(panel, k0, k1, out, [](const PanelQ4_1& p, int, float* to) {
    const Float16 d = half16(p.d), m = half16(p.m);
    for (int g = 0; g < 8; ++g)
      spread(nibble_group(p.q, g), 0, to + 64 * g, [&](Float16 q) { return add(mul(d, q), m); });
  });
}
void decode_q5_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q5_0>(panel, k0, k1, out, [](const PanelQ5_0& p, int, float* to) {
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g)
      spread(five_bit_group(p.q, p.high, g), 16, to + 64 * g, [&](Float16 q) { return mul(d, q); });
  });
}
void decode_q8_0(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q8_0>(panel, k0, k1, out, [](const PanelQ8_0& p, int, float* to) {
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g)
      spread(byte_group(p.q[g]), 128, to + 64 * g, [&](Float16 q) { return mul(d, q); });
  });
}
void decode_q4_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q4K>(panel, k0, k1, out, [](const PanelQ4K& p, int s, float* to) {
    const auto& sub = p.sub[s];
    const Float16 step = mul(half16(p.d), to_float(bytes_to_int(sub.scale)));
    const Float16 offset = mul(half16(p.dmin), to_float(bytes_to_int(sub.min)));
    for (int g = 0; g < 8; ++g)
      spread(nibble_group(sub.q, g), 0, to + 64 * g,
             [&](Float16 q) { return subtract(mul(step, q), offset); });
  });
}
void decode_q5_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q5K>(panel, k0, k1, out, [](const PanelQ5K& p, int s, float* to) {
    const auto& sub = p.sub[s];
    const Float16 step = mul(half16(p.d), to_float(bytes_to_int(sub.scale)));
    const Float16 offset = mul(half16(p.dmin), to_float(bytes_to_int(sub.min)));
    for (int g = 0; g < 8; ++g)
      spread(five_bit_group(sub.q, sub.high, g), 0, to + 64 * g,
             [&](Float16 q) { return subtract(mul(step, q), offset); });
  });
}
void decode_q6_k(const std::byte* panel, std::int64_t k0, std::int64_t k1, float* out) noexcept {
  decode<Q6K>(panel, k0, k1, out, [](const PanelQ6K& p, int s, float* to) {
    const auto& sub = p.sub[s];
    const Float16 d = half16(p.d);
    for (int g = 0; g < 8; ++g) {
      const Float16 step = mul(d, to_float(bytes_to_int(sub.scale[g / 4])));
      spread(six_bit_group(sub, g), 32, to + 64 * g, [&](Float16 q) { return mul(step, q); });
    }
  });
}

template <int M>
inline void gemm_tile(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, float* acc,
                      std::int64_t acc_stride) {
  Float16 sum[M];
  for (int m = 0; m < M; ++m) sum[m] = load(acc + m * acc_stride);
  for (std::int64_t i = 0; i < k; ++i) {
    const Float16 column = load(w + i * kPanelRows);
    for (int m = 0; m < M; ++m) sum[m] = fma(column, set1(x[m * x_stride + i]), sum[m]);
  }
  for (int m = 0; m < M; ++m) store(acc + m * acc_stride, sum[m]);
}

template <int kFirst, int... kRest>
inline void gemm_rows(const float* w, std::int64_t k, const float* x, std::int64_t x_stride,
                      std::int64_t rows, float* acc, std::int64_t acc_stride, std::int64_t row,
                      RowCounts<kFirst, kRest...>) {
  for (; row + kFirst <= rows; row += kFirst)
    gemm_tile<kFirst>(w, k, x + row * x_stride, x_stride, acc + row * acc_stride, acc_stride);
  if constexpr (sizeof...(kRest) > 0)
    gemm_rows(w, k, x, x_stride, rows, acc, acc_stride, row, RowCounts<kRest...>());
}

void gemm(const float* w, std::int64_t k, const float* x, std::int64_t x_stride, std::int64_t rows,
          float* acc, std::int64_t acc_stride) noexcept {
  gemm_rows(w, k, x, x_stride, rows, acc, acc_stride, 0, GemmRows());
}

constexpr MatmulRow tuned_row(const char* isa) {
  return {.isa = isa,
          .q4_0 = &dot_panel<Q4_0>,
          .q4_1 = &dot_panel<Q4_1>,
          .q5_0 = &dot_panel<Q5_0>,
          .q8_0 = &dot_panel<Q8_0>,
          .q4_k = &dot_panel<Q4K>,
          .q5_k = &dot_panel<Q5K>,
          .q6_k = &dot_panel<Q6K>,
          .decode_f16 = &decode_f16,
          .decode_bf16 = &decode_bf16,
          .decode_q4_0 = &decode_q4_0,
          .decode_q4_1 = &decode_q4_1,
          .decode_q5_0 = &decode_q5_0,
          .decode_q8_0 = &decode_q8_0,
          .decode_q4_k = &decode_q4_k,
          .decode_q5_k = &decode_q5_k,
          .decode_q6_k = &decode_q6_k,
          .gemm = &gemm};
}

}  // namespace
}  // namespace kvtide
