// One arithmetic (docs/architecture.md, idea 4): what must not change a bit of attention.
//
// What holds: chunks, threads, tables, where rows lie in memory, and cuts between spans at multiples of 64
// positions. A cut inside a tile makes two partials of one and so changes the rounding; states never make one
// (layer_rows.h).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attend.h"
#include "kernels/kernels.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/same_bits.h"

namespace kvtide {
namespace {

using testing::AttendCase;
using testing::AttendOptions;
using testing::full_spans;
using testing::make_case;
using testing::run_attend;
using testing::same_bits;
using testing::SpanLists;

std::vector<AttendOptions> cases() {
  std::vector<AttendOptions> out = {
      {.first = 0, .tokens = 150, .heads = 4, .kv_heads = 2, .head_dim = 16},
      {.first = 37, .tokens = 100, .heads = 9, .kv_heads = 3, .head_dim = 64},
      {.first = 1000, .tokens = 80, .heads = 2, .kv_heads = 1, .head_dim = 80, .window = 100},
      {.first = 2100, .tokens = 70, .heads = 3, .kv_heads = 1, .head_dim = 8},
      {.first = 3000, .tokens = 20, .heads = 4, .kv_heads = 4, .head_dim = 20, .window = 2000, .compact = 70},
      {.first = 60, .tokens = 200, .heads = 9, .kv_heads = 1, .head_dim = 32, .window = 1},
      // Several groups of 1,024 positions, and a window whose oldest tile moves on within the chunk.
      {.first = 2480, .tokens = 150, .heads = 2, .kv_heads = 1, .head_dim = 16, .window = 1500},
  };
  out[1].key_type = out[1].value_type = DType::f16;
  out[2].key_type = DType::f16;
  out[3].value_type = DType::f16;
  out.push_back({.first = 90, .tokens = 30, .heads = 8, .kv_heads = 2, .head_dim = 96});
  out.back().key_type = out.back().value_type = DType::q8_0;
  out.push_back({.first = 1990, .tokens = 90, .heads = 3, .kv_heads = 1, .head_dim = 64, .compact = 70});
  out.back().key_type = out.back().value_type = DType::q8_0;
  out.push_back({.first = 150, .tokens = 80, .heads = 7, .kv_heads = 1, .head_dim = 32, .window = 45});
  out.back().key_type = out.back().value_type = DType::q8_0;
  for (std::size_t i = 0, plain = out.size(); i < plain; ++i) {
    out.push_back(out[i]);
    out.back().bf16 = true;
  }
  return out;
}

TEST(AttendBits, AreThoseOfTheScalarTable) {
  for (const AttendOptions& o : cases()) {
    const AttendCase c = make_case(o);
    const auto wanted = run_attend(c, kAttendScalar, 1, full_spans(c));
    for (const Kernels* kernels : available_kernels())
      EXPECT_TRUE(same_bits(run_attend(c, kernels->attend, 1, full_spans(c)), wanted))
          << kernels->isa << " first " << o.first << " dim " << o.head_dim;
  }
}

// One token, so that rows are met as they lie, not packed.
AttendCase one_token(int heads, int head_dim) {
  AttendOptions o{.first = 300, .tokens = 1, .heads = heads, .kv_heads = 1, .head_dim = head_dim};
  o.key_type = o.value_type = DType::f16;
  o.bf16 = true;
  return make_case(o);
}

TEST(AttendBits, OfFewQueriesAreThoseOfTheScalarTable) {
  for (const int head_dim : {32, 64, 96, 128, 160, 256})
    for (int heads = 1; heads <= 9; ++heads) {
      const AttendCase c = one_token(heads, head_dim);
      const auto wanted = run_attend(c, kAttendScalar, 1, full_spans(c));
      for (const Kernels* kernels : available_kernels())
        EXPECT_TRUE(same_bits(run_attend(c, kernels->attend, 1, full_spans(c)), wanted))
            << kernels->isa << " heads " << heads << " dim " << head_dim;
    }
}

// A tile of 64 rows whose numbers are 4,096 finite f16 numbers in a row, so that those of one row are alike in size.
struct F16Tile {
  std::vector<std::uint16_t> numbers;
  AttendTile tile{};
  explicit F16Tile(unsigned from) {
    for (unsigned i = from; i < from + kTileRows * 64; ++i) {
      const unsigned sign = i % 2 << 15;
      numbers.push_back(static_cast<std::uint16_t>(i % 0x7c00 | sign));
    }
    tile.keys = tile.values = reinterpret_cast<const std::byte*>(numbers.data());
    tile.key_type = tile.value_type = DType::f16;
    tile.key_stride = tile.value_stride = 64 * 2;
    tile.end = kTileRows;
  }
};

// Eight queries of which each sees one row: its score, and its values times a weight of 1.
std::vector<float> meet_rows(const AttendRow& table, const AttendTile& tile, int first) {
  constexpr int kCount = 8, kDim = 64;
  std::vector<float> q, max(kCount, -std::numeric_limits<float>::infinity()), sum(kCount), out(kCount * kDim);
  for (int i = 0; i < kCount * kDim; ++i) q.push_back(0.75f + 0.5f * static_cast<float>(i % 7));
  std::vector<std::uint32_t> pairs(q.size());
  table.pack_queries(kCount, kDim, q.data(), pairs.data());
  int lo[kCount], hi[kCount];
  for (int i = 0; i < kCount; ++i) hi[i] = 1 + (lo[i] = first + i);
  table.fold_tile_bf16(tile, {kCount, kDim, kDim, 0.125f, q.data(), pairs.data(), lo, hi},
                       {max.data(), sum.data(), out.data()});
  EXPECT_EQ(sum, std::vector<float>(kCount, 1.0f));
  out.insert(out.end(), max.begin(), max.end());
  return out;
}

TEST(AttendBits, OfFewQueriesAreThoseOfTheScalarTable_WhateverTheFinite16BitNumbers) {
  for (unsigned from = 0; from < 0x8000; from += kTileRows * 64) {
    const F16Tile rows(from);
    for (int first = 0; first < kTileRows; first += 8) {
      const auto wanted = meet_rows(kAttendScalar, rows.tile, first);
      for (const Kernels* kernels : available_kernels())
        EXPECT_TRUE(same_bits(meet_rows(kernels->attend, rows.tile, first), wanted))
            << kernels->isa << " numbers from " << from << " row " << first;
    }
  }
}

// An infinite key is either all that a query sees or nothing, and an infinite value is infinite.
TEST(AttendBits, OfFewQueriesAreThoseOfTheScalarTable_WithInfiniteNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool in_keys : {true, false}) {
    AttendCase c = one_token(4, 64);
    testing::Rows& rows = in_keys ? c.heads[0].keys : c.heads[0].values;
    rows.numbers[70 * 64 + 9] = infinity;
    rows.numbers[200 * 64 + 30] = -infinity;
    rows.store_all();
    const auto wanted = run_attend(c, kAttendScalar, 1, full_spans(c));
    EXPECT_NE(std::count_if(wanted.begin(), wanted.end(), [](float x) { return std::isfinite(x); }), 0);
    for (const Kernels* kernels : available_kernels())
      EXPECT_TRUE(same_bits(run_attend(c, kernels->attend, 1, full_spans(c)), wanted)) << kernels->isa;
  }
}

TEST(AttendBits, DoNotDependOnTheNumberOfThreads) {
  for (const AttendOptions& o : cases()) {
    const AttendCase c = make_case(o);
    const AttendCase last =
        testing::part_of(c, o.tokens - 1, 1);  // one query: threads share its rows instead
    SpanLists spans = full_spans(c);
    const auto wanted = run_attend(c, best_kernels().attend, 1, spans);
    const auto wanted_last = run_attend(last, best_kernels().attend, 1, spans);
    for (const int threads : {2, 3, 4, 8, 17}) {
      EXPECT_TRUE(same_bits(run_attend(c, best_kernels().attend, threads, spans), wanted)) << threads;
      EXPECT_TRUE(same_bits(run_attend(last, best_kernels().attend, threads, spans), wanted_last)) << threads;
    }
  }
}

TEST(AttendBits, DoNotDependOnTheChunk) {
  for (const AttendOptions& o : cases()) {
    const AttendCase c = make_case(o);
    const SpanLists all = full_spans(c);
    const auto wanted = run_attend(c, best_kernels().attend, 2, all);
    for (const std::int64_t chunk : {1, 2, 7, 16, 64}) {
      std::vector<float> got;
      for (std::int64_t from = 0; from < o.tokens; from += chunk) {
        const AttendCase part = testing::part_of(c, from, std::min(chunk, o.tokens - from));
        // The rows that exist at that moment: none of the later tokens.
        SpanLists spans = all;
        for (auto& list : spans) list.back().rows = part.shape.first + part.shape.tokens - *list.back().first;
        const auto rows = run_attend(part, best_kernels().attend, 2, spans);
        got.insert(got.end(), rows.begin(), rows.end());
      }
      EXPECT_TRUE(same_bits(got, wanted))
          << "chunk " << chunk << " first " << o.first << " dim " << o.head_dim;
    }
  }
}

TEST(AttendBits, DoNotDependOnWhichInvisibleRowsAreThere) {
  for (const bool bf16 : {false, true}) {
    AttendOptions o{.first = 900, .tokens = 10, .window = 130};
    o.bf16 = bf16;
    const AttendCase c = make_case(o);
    const auto wanted = run_attend(c, best_kernels().attend, 1, full_spans(c));
    for (Pos from = 700; from <= 900 - 130 + 1;
         ++from)  // rows before the window, also parts of its first tile
      EXPECT_TRUE(same_bits(run_attend(c, best_kernels().attend, 1, full_spans(c, from)), wanted)) << from;
  }
}

TEST(AttendBits, DoNotDependOnCutsBetweenTiles) {
  for (const AttendOptions& o : cases()) {
    const AttendCase c = make_case(o);
    const auto wanted = run_attend(c, best_kernels().attend, 2, full_spans(c));
    EXPECT_TRUE(same_bits(
        run_attend(c, best_kernels().attend, 2, full_spans(c, 0, {64, 128, 192, 1024, 1984})), wanted))
        << o.first;
  }
}

// A ring of `rows` rows that holds the newest positions: row = position % rows.
struct Ring {
  std::vector<testing::Head> heads;

  Ring(const AttendCase& c, std::int64_t rows) : heads(c.heads) {
    const auto width = static_cast<std::size_t>(c.shape.head_dim);
    for (std::size_t h = 0; h < heads.size(); ++h)
      for (auto rows_of : {&testing::Head::keys, &testing::Head::values}) {
        testing::Rows& target = heads[h].*rows_of;
        const testing::Rows& source = c.heads[h].*rows_of;
        target.numbers.assign(static_cast<std::size_t>(rows) * width, 9e9f);
        for (std::size_t p = 0; p * width < source.numbers.size(); ++p)
          std::copy_n(source.numbers.begin() + static_cast<std::ptrdiff_t>(p * width), width,
                      target.numbers.begin() +
                          static_cast<std::ptrdiff_t>(p % static_cast<std::size_t>(rows) * width));
        target.store_all();
      }
  }
};

TEST(AttendBits, AreThoseOfFullStorage_WhenTheRowsLieInARing) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Pos first : {100, 191, 192, 250, 300, 317, 383, 1027})
      for (const std::int64_t window : {1, 60, 64, 100}) {
        AttendOptions o{.first = first, .tokens = 25, .heads = 4, .kv_heads = 2, .window = window};
        o.key_type = o.value_type = dtype;
        const AttendCase c = make_case(o);
        const std::int64_t rows = 192;
        const Ring ring(c, rows);
        SpanLists spans(2);
        const Pos oldest = std::max<Pos>(0, first - window + 1), end = first + 25;
        for (std::size_t h = 0; h < 2; ++h)
          for (Pos p = oldest; p < end;) {
            const Pos stop = std::min(end, (p / rows + 1) * rows);
            spans[h].push_back(
                testing::span_of(ring.heads[h].keys, ring.heads[h].values, p % rows, stop - p));
            spans[h].back().first = p;
            p = stop;
          }
        EXPECT_TRUE(same_bits(run_attend(c, best_kernels().attend, 2, spans),
                              run_attend(c, best_kernels().attend, 2, full_spans(c))))
            << "first " << first << " window " << window;
      }
}

TEST(AttendBits, OfAQueryDoNotDependOnTheOtherQueries) {
  const AttendCase c = make_case({.first = 130, .tokens = 33, .heads = 6, .kv_heads = 2});
  const SpanLists spans = full_spans(c);
  const auto together = run_attend(c, best_kernels().attend, 1, spans);
  AttendCase others = c;
  const std::size_t row = 6 * 16;
  for (std::size_t i = 0; i < others.q.size(); ++i)
    if (i / row != 20) others.q[i] *= -37.0f;
  const auto changed = run_attend(others, best_kernels().attend, 1, spans);
  EXPECT_TRUE(
      same_bits(std::span(changed).subspan(20 * row, row), std::span(together).subspan(20 * row, row)));
}

}  // namespace
}  // namespace kvtide
