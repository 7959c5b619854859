// matmul_unpacked.inl: products of many rows of activations by quants that are taken apart once for all of them. With short
// registers, which hold few rows at a time, matmul_tuned.inl would do it again for every four. Included behind that, what
// it is written on, and
//   bytes64, store64  a group of quants, a byte each, from and to memory
#include <cstring>

namespace kvtide {
namespace {

// A block of 32 elements unpacked: a byte for each quant.
template <class Type>
struct Unpacked {
  alignas(64) std::uint8_t quants[8][64];
  alignas(64) float numbers[Type::kNumbers][kPanelRows];

  Int16 group(int g) const { return bytes64(quants[g]); }
  template <int i>
  Float16 number() const {
    return load(numbers[i]);
  }
  void unpack(const Packed<Type>& block) {
    for (int g = 0; g < 8; ++g) store64(quants[g], block.group(g));
    each<Type::kNumbers>([&](auto i) { store(numbers[i], block.template number<i>()); });
  }
};

// Blocks that are unpacked at once, and the most rows they are for: both, with the sums of these rows, stay near.
constexpr int kChunk = 8;
constexpr std::int64_t kMostRows = 128;

template <int kFirst, int... kRest>
constexpr int first_of(RowCounts<kFirst, kRest...>) {
  return kFirst;
}
constexpr int kRowsAtOnce = first_of(DotRows());

// Rows [first, first + count); count is at most kMostRows and a multiple of kRowsAtOnce.
template <class Type>
inline void unpacked_rows(const typename Type::Panel* panel, const QuantRows& rows, const PanelOut& out,
                          std::int64_t first, std::int64_t count) {
  constexpr int M = kRowsAtOnce, kSteps = Type::kBlock / 32;
  Unpacked<Type> chunk[kChunk];
  alignas(64) float sums[kMostRows][kPanelRows];
  std::memset(sums, 0, static_cast<std::size_t>(count) * sizeof(sums[0]));
  const auto* bytes = reinterpret_cast<const std::byte*>(panel);
  constexpr std::int64_t kBytes = sizeof(*panel) / kSteps;
  const std::int64_t blocks = rows.k / 32;
  for (std::int64_t b0 = 0; b0 < blocks; b0 += kChunk) {
    const int n = static_cast<int>(std::min<std::int64_t>(kChunk, blocks - b0));
    for (int i = 0; i < n; ++i)
      chunk[i].unpack({panel[(b0 + i) / kSteps], static_cast<int>((b0 + i) % kSteps)});
    // As many bytes behind them, of this panel or the next one, come in evenly meanwhile.
    const std::byte* next = bytes + (b0 + n) * kBytes;
    std::int64_t fetched = 0;
    const bool last = b0 + n == blocks;
    for (std::int64_t m0 = 0; m0 < count; m0 += M) {
      for (; fetched < n * kBytes * (m0 + M) / count; fetched += 64) __builtin_prefetch(next + fetched, 0, 2);
      float* y = out.y + (first + m0) * out.stride;
      XView<M> x{rows.row(first + m0)};
      x.skip(b0);
      Float16 acc[M];
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        acc[m] = load(sums[m0 + m]);
        if (last) __builtin_prefetch(y + m * out.stride, 1, 3);
      }
#pragma GCC unroll 1
      for (int i = 0; i < n; ++i, x.skip(1)) Type::template step<M>(chunk[i], x, acc);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        if (last)
          store_columns(y + m * out.stride, acc[m], out.columns);
        else
          store(sums[m0 + m], acc[m]);
      }
    }
  }
}

// Fewer rows than these are multiplied by quants as they lie.
constexpr std::int64_t kUnpackRows = 16;

template <class Type>
void unpacked_panel(const std::byte* bytes, const QuantRows& rows, const PanelOut& out) noexcept {
  const auto* panel = reinterpret_cast<const typename Type::Panel*>(bytes);
  std::int64_t row = 0;
  while (rows.rows - row >= kUnpackRows) {
    const std::int64_t count = std::min((rows.rows - row) / kRowsAtOnce * kRowsAtOnce, kMostRows);
    unpacked_rows<Type>(panel, rows, out, row, count);
    row += count;
  }
  dot_rows<Type>(panel, rows, out, row, DotRows());
}

constexpr MatmulRow unpacked_row(const char* isa) {
  MatmulRow row = tuned_row(isa);
  row.q4_0 = &unpacked_panel<Q4_0>;  // q8_0 is bytes already
  row.q4_1 = &unpacked_panel<Q4_1>;
  row.q5_0 = &unpacked_panel<Q5_0>;
  row.q4_k = &unpacked_panel<Q4K>;
  row.q5_k = &unpacked_panel<Q5K>;
  row.q6_k = &unpacked_panel<Q6K>;
  return row;
}

}  // namespace
}  // namespace kvtide
