// How rows lie: apart or side by side, never over one another, and never in more pages than were said.
#include "state/rows/row_format.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/pages.h"
#include "state/rows/layer_rows.h"
#include "state/rows/row_span.h"

namespace kvtide {
namespace {

KvSpec spec_of(int kv_heads, int head_dim, DType key_type, DType value_type, bool procedural) {
  KvSpec spec;
  spec.layers = {{kv_heads, head_dim, std::nullopt, {}}};
  spec.key_type = key_type;
  spec.value_type = value_type;
  if (procedural) spec.procedural.emplace();
  return spec;
}
RowFormat format_of(const KvSpec& spec) { return row_format(spec, spec.layers[0]); }

const KvSpec kSpecs[] = {
    spec_of(3, 64, DType::q8_0, DType::q8_0, true), spec_of(3, 64, DType::q8_0, DType::q8_0, false),
    spec_of(1, 32, DType::q4_0, DType::f32, true), spec_of(3, 32, DType::q8_0, DType::f16, true)};

// Different for every byte of every row.
void write(LayerRows& rows, std::int64_t first, std::int64_t last) {
  const RowFormat& format = rows.format();
  rows.open(first, last);
  for (std::int64_t row = first; row < last; ++row)
    for (int head = 0; head < format.kv_heads; ++head) {
      std::memset(rows.key(head, row), static_cast<int>(row % 100 + 2 * head + 1),
                  static_cast<std::size_t>(format.key_bytes));
      std::memset(rows.value(head, row), static_cast<int>(row % 100 + 2 * head + 2),
                  static_cast<std::size_t>(format.value_bytes));
    }
}

void expect_written(const LayerRows& rows, std::int64_t first, std::int64_t last) {
  const RowFormat& format = rows.format();
  for (const LayerRows::Run& run : rows.runs(first, last))
    for (std::int64_t row = run.first; row < run.last; ++row)
      for (int head = 0; head < format.kv_heads; ++head) {
        const std::byte* key = run.extent->key(head, row);
        const std::byte* value = run.extent->value(head, row);
        for (std::int64_t i = 0; i < format.key_bytes; ++i)
          ASSERT_EQ(static_cast<std::int64_t>(key[i]), row % 100 + 2 * head + 1)
              << row << " of head " << head;
        for (std::int64_t i = 0; i < format.value_bytes; ++i)
          ASSERT_EQ(static_cast<std::int64_t>(value[i]), row % 100 + 2 * head + 2)
              << row << " of head " << head;
      }
}

TEST(RowFormat, HeadsLieTogether_InSmallLayersOfAProceduralMemory) {
  EXPECT_TRUE(format_of(spec_of(3, 64, DType::q8_0, DType::q8_0, true)).heads_together);
  EXPECT_FALSE(format_of(spec_of(3, 64, DType::q8_0, DType::q8_0, false)).heads_together);
  EXPECT_FALSE(format_of(spec_of(8, 128, DType::f16, DType::f16, true)).heads_together)
      << "a page a position";
  EXPECT_FALSE(format_of(spec_of(1, 256, DType::f16, DType::f16, true)).heads_together)
      << "1,024 bytes apart";
}

TEST(RowFormat, HeadsOfWideWindowsLieApart) {
  KvSpec spec = spec_of(3, 64, DType::q8_0, DType::q8_0, true);
  spec.procedural->window = 2048;
  EXPECT_FALSE(format_of(spec).heads_together);
}

TEST(RowFormat, ValuesBeginWhereFloatsMay) {
  const RowFormat format = format_of(spec_of(3, 32, DType::q4_0, DType::f32, true));
  ASSERT_TRUE(format.heads_together);
  EXPECT_EQ(format.values_at() % 4, 0);
  EXPECT_EQ(format.position_stride() % 4, 0);
  EXPECT_GE(format.values_at(), 3 * format.key_bytes);
}

TEST(RowFormat, RowsKeepTheirBytes_WhenOthersAreWrittenForkedDroppedAndTakenBack) {
  for (const KvSpec& spec : kSpecs) {
    LayerRows rows(format_of(spec), 64);
    write(rows, 0, 90);
    LayerRows fork(rows);
    write(fork, 90, 200);
    write(rows, 90, 120);
    rows.drop(3, 64);
    rows.truncate(100);
    expect_written(rows, 0, 100);
    expect_written(fork, 0, 200);
    write(rows, 100, 300);
    expect_written(rows, 0, 300);
  }
}

TEST(RowFormat, AWindowThatMovesOn_AndWasForkedTwice_TakesNoMorePagesThanWereSaid) {
  constexpr std::int64_t kWindow = 192;
  for (const KvSpec& spec : kSpecs) {
    const RowFormat format = format_of(spec);
    LayerRows rows(format, 4096);
    for (std::int64_t end = 1; end <= 3000; ++end) {
      if (end > kWindow) rows.drop(end - 1 - kWindow, end - kWindow);
      write(rows, end - 1, end);
      ASSERT_LE(rows.held_bytes(), most_page_bytes(format, kWindow)) << end;
      if (end % 97 != 0) continue;
      LayerRows fork(rows);
      rows = std::move(fork);
    }
    expect_written(rows, 3000 - kWindow, 3000);
  }
}

TEST(RowFormat, PartsWithoutGaps_AreTheRowsInOrder_AndFillThem) {
  for (const KvSpec& spec : kSpecs) {
    const RowFormat format = format_of(spec);
    LayerRows rows(format, 4096);
    write(rows, 0, 3000);
    const RowSpan span{rows.key(0, 0), 3000, format.key_bytes, format.key_stride()};
    std::vector<std::byte> dense;
    in_dense_parts(
        ConstRowSpan{span.data, span.rows, span.row_bytes, span.stride},
        [&](std::span<const std::byte> part) { dense.insert(dense.end(), part.begin(), part.end()); });
    ASSERT_EQ(dense.size(), span.bytes());
    for (std::int64_t row = 0; row < span.rows; ++row)
      ASSERT_EQ(std::memcmp(dense.data() + row * span.row_bytes, span.row(row).data(), span.row(row).size()),
                0);

    LayerRows filled(format, 4096);
    filled.open(0, 3000);
    std::size_t at = 0;
    in_dense_parts(RowSpan{filled.key(0, 0), 3000, format.key_bytes, format.key_stride()},
                   [&](std::span<std::byte> part) {
                     std::memcpy(part.data(), dense.data() + at, part.size());
                     at += part.size();
                   });
    for (std::int64_t row = 0; row < span.rows; ++row)
      ASSERT_EQ(std::memcmp(filled.key(0, row), rows.key(0, row), span.row(row).size()), 0);
  }
}

}  // namespace
}  // namespace kvtide
