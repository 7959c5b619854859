// Rows that are seen from elsewhere: moved nearer, as sinks, or both; and rows kept in eight bits.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"
#include "kernels/attend.h"
#include "kernels/kernels.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/same_bits.h"

namespace kvtide {
namespace {

using testing::AttendCase;
using testing::AttendOptions;
using testing::make_case;
using testing::run_attend;
using testing::same_bits;
using testing::SpanLists;

// Some consecutive positions and how they are seen.
struct Piece {
  Pos first, last;
  std::int64_t shift = 0;
  bool sink = false;
  std::optional<Pos> limit = std::nullopt;
};

SpanLists spans_of(const AttendCase& c, const std::vector<Piece>& pieces) {
  SpanLists lists(c.heads.size());
  for (std::size_t h = 0; h < c.heads.size(); ++h)
    for (const Piece& piece : pieces) {
      lists[h].push_back(
          testing::span_of(c.heads[h].keys, c.heads[h].values, piece.first, piece.last - piece.first));
      lists[h].back().first = piece.first;
      lists[h].back().shift = piece.shift;
      lists[h].back().sink = piece.sink;
      lists[h].back().reader_limit = piece.limit;
    }
  return lists;
}

AttendCase rotary_case(const AttendOptions& o) {
  AttendCase c = make_case(o);
  c.rotary = true;
  return c;
}

// In double, and the other way round: the query stays at its position, and the stored key is turned by as
// much as the query would have been turned back.
std::vector<double> direct_views(const AttendCase& c, const std::vector<Piece>& pieces) {
  const AttendShape& s = c.shape;
  const auto dim = static_cast<std::size_t>(s.head_dim);
  std::vector<double> out(c.q.size(), 0.0);
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (int h = 0; h < s.heads; ++h) {
      const auto& head = c.heads[static_cast<std::size_t>(h / (s.heads / s.kv_heads))];
      const std::size_t at = static_cast<std::size_t>(t * s.heads + h) * dim;
      const Pos reader = s.first + t;
      const auto query = testing::turned(std::span(c.q).subspan(at, dim), static_cast<double>(reader));
      std::vector<double> score;
      std::vector<std::size_t> rows;
      for (const Piece& piece : pieces)
        for (Pos p = piece.first; p < piece.last; ++p) {
          const Pos seen = p + piece.shift;
          if (seen > reader || (s.window && !piece.sink && seen <= reader - *s.window)) continue;
          const Pos stands = std::min(reader - piece.shift, piece.limit.value_or(reader - piece.shift));
          const auto row = static_cast<std::size_t>(p);
          const auto key = testing::turned(std::span(head.keys.numbers).subspan(row * dim, dim),
                                           static_cast<double>(reader - stands));
          double sum = 0.0;
          for (std::size_t d = 0; d < dim; ++d) sum += query[d] * key[d];
          score.push_back(sum * static_cast<double>(s.scale));
          rows.push_back(row);
        }
      const double highest = *std::max_element(score.begin(), score.end());
      double total = 0.0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const double weight = std::exp(score[i] - highest);
        total += weight;
        for (std::size_t d = 0; d < dim; ++d)
          out[at + d] += weight * static_cast<double>(head.values.numbers[rows[i] * dim + d]);
      }
      for (std::size_t d = 0; d < dim; ++d) out[at + d] /= total;
    }
  return out;
}

// As in attend_test.cpp, and the rotated queries were rounded to f32 once more.
constexpr double kViewTolerance = 2e-5;

void expect_near_direct(const AttendCase& c, const std::vector<Piece>& pieces, const std::string& what) {
  const auto wanted = direct_views(c, pieces);
  for (const Kernels* kernels : available_kernels()) {
    const auto got = run_attend(c, kernels->attend, 2, spans_of(c, pieces));
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i], kViewTolerance) << what << " " << kernels->isa << " element " << i;
  }
}

struct Layout {
  std::string name;
  AttendOptions options;
  std::vector<Piece> pieces;
};

// Every way in which a state arranges rows, for a chunk of 70 tokens.
std::vector<Layout> layouts() {
  const AttendOptions plain{.first = 300, .tokens = 70, .heads = 4, .kv_heads = 2, .head_dim = 32};
  AttendOptions windowed = plain;
  windowed.window = 60;
  return {
      {"a hole", plain, {{0, 100}, {130, 370}}},
      {"a hole inside a tile", windowed, {{200, 250}, {251, 370}}},
      {"a closed gap", plain, {{0, 100, 30}, {130, 370}}},
      {"two closed gaps", plain, {{0, 64, 80}, {100, 150, 44}, {194, 370}}},
      {"a closed gap that the window crosses", windowed, {{180, 260, 30}, {290, 370}}},
      {"sinks", windowed, {{0, 4, 0, true}, {236, 370}}},
      {"sinks at a near distance", windowed, {{0, 4, 0, true, 63}, {236, 370}}},
      {"sinks whose readers pass the limit inside the chunk", windowed, {{0, 4, 0, true, 330}, {236, 370}}},
      {"sinks before a closed gap", windowed, {{0, 4, 30, true, 63}, {206, 260, 30}, {290, 370}}},
      {"sinks of several tiles", windowed, {{0, 150, 0, true, 209}, {236, 370}}},
      {"more gaps than tiles", plain, {{0, 1, 9}, {2, 3, 8}, {4, 5, 7}, {10, 20, 2}, {22, 370}}},
  };
}

TEST(AttendViews, EqualTheSoftmaxInDoubleOfKeysThatWereMoved) {
  for (const Layout& layout : layouts())
    expect_near_direct(rotary_case(layout.options), layout.pieces, layout.name);
}

TEST(AttendViews, EqualTheSoftmaxInDouble_ForEveryMixOfTypes) {
  for (const DType keys : {DType::f32, DType::f16, DType::q8_0, DType::q4_0})
    for (const DType values : {DType::f32, DType::f16, DType::q8_0, DType::q4_0})
      for (const int head_dim : {32, 64, 96, 256, 512}) {
        AttendOptions o{.first = 150, .tokens = 9, .heads = 6, .kv_heads = 2, .head_dim = head_dim};
        o.key_type = keys;
        o.value_type = values;
        o.window = 100;
        expect_near_direct(rotary_case(o), {{0, 4, 20, true, 100}, {40, 60, 20}, {80, 159}},
                           cat(dtype_info(keys).name, " ", dtype_info(values).name, " dim ", head_dim));
      }
}

// A block of 32 has the values -127 to 127 times its step; a query of ones makes sums that f32 holds exactly.
TEST(AttendViews, ReadEightBitRowsExactlyAsTheirStepTimesTheirQuants) {
  for (const Kernels* kernels : available_kernels()) {
    AttendCase c =
        make_case({.heads = 1, .head_dim = 64, .key_type = DType::q8_0, .value_type = DType::q8_0});
    auto& values = c.heads[0].values;
    for (std::size_t i = 0; i < 64; ++i) values.numbers[i] = 0.5f * static_cast<float>((i * 4) % 255) - 63.5f;
    values.numbers[0] = 63.5f;
    values.numbers[32] = -63.5f;
    const std::vector<float> wished = values.numbers;
    values.store_all();
    ASSERT_TRUE(same_bits(values.numbers, wished)) << "steps of a half are kept exactly";
    EXPECT_TRUE(same_bits(run_attend(c, kernels->attend, 1, spans_of(c, {{0, 1}})), wished)) << kernels->isa;
  }
}

TEST(AttendViews, AreTheSameBitsForEveryTableAndThreadCount) {
  for (const Layout& layout : layouts())
    for (const DType type : {DType::f32, DType::f16, DType::q8_0, DType::q4_0}) {
      AttendOptions o = layout.options;
      o.key_type = o.value_type = type;
      const AttendCase c = rotary_case(o);
      const auto spans = spans_of(c, layout.pieces);
      const auto wanted = run_attend(c, kAttendScalar, 1, spans);
      for (const Kernels* kernels : available_kernels())
        for (const int threads : {1, 2, 5})
          EXPECT_TRUE(same_bits(run_attend(c, kernels->attend, threads, spans), wanted))
              << layout.name << " " << kernels->isa << " " << threads;
    }
}

TEST(AttendViews, AreTheSameBitsForEveryChunk) {
  for (const Layout& layout : layouts()) {
    const AttendCase c = rotary_case(layout.options);
    const auto wanted = run_attend(c, best_kernels().attend, 2, spans_of(c, layout.pieces));
    for (const std::int64_t chunk : {1, 7, 32}) {
      std::vector<float> got;
      for (std::int64_t from = 0; from < 70; from += chunk) {
        const AttendCase part = testing::part_of(c, from, std::min<std::int64_t>(chunk, 70 - from));
        std::vector<Piece> pieces = layout.pieces;
        pieces.back().last = part.shape.first + part.shape.tokens;
        const auto rows = run_attend(part, best_kernels().attend, 2, spans_of(c, pieces));
        got.insert(got.end(), rows.begin(), rows.end());
      }
      EXPECT_TRUE(same_bits(got, wanted)) << layout.name << " chunk " << chunk;
    }
  }
}

TEST(AttendViews, AreTheSameBitsWhereverRowsAreCutBetweenTiles) {
  for (const Layout& layout : layouts()) {
    const AttendCase c = rotary_case(layout.options);
    std::vector<Piece> cut;
    for (Piece piece : layout.pieces) {
      for (Pos edge = (piece.first / 64 + 1) * 64; edge < piece.last; edge += 64) {
        cut.push_back(piece);
        cut.back().last = edge;
        piece.first = edge;
      }
      cut.push_back(piece);
    }
    ASSERT_GT(cut.size(), layout.pieces.size()) << layout.name;
    EXPECT_TRUE(same_bits(run_attend(c, best_kernels().attend, 2, spans_of(c, cut)),
                          run_attend(c, best_kernels().attend, 2, spans_of(c, layout.pieces))))
        << layout.name;
  }
}

TEST(AttendViews, ALimitThatNoReaderPasses_IsNoLimitBitForBit) {
  const AttendCase c = rotary_case({.first = 300, .tokens = 10, .head_dim = 32, .window = 60});
  EXPECT_TRUE(
      same_bits(run_attend(c, best_kernels().attend, 1, spans_of(c, {{0, 4, 0, true, 309}, {240, 310}})),
                run_attend(c, best_kernels().attend, 1, spans_of(c, {{0, 4, 0, true}, {240, 310}}))));
}

// A query that reads a text with the middle taken out and the gap closed sees the older part exactly where a
// reader `shift` tokens nearer would: only the rounding of the angles may differ.
TEST(AttendViews, AMovedRowCountsLikeOneThatWasWrittenNearer) {
  const std::int64_t shift = 30;
  AttendCase moved = rotary_case({.first = 200, .tokens = 1, .head_dim = 32});
  AttendCase nearer = moved;
  for (auto& head : nearer.heads)
    for (std::size_t p = 0; p < 100; ++p) {
      const auto key = testing::turned(std::span(moved.heads[0].keys.numbers).subspan(p * 32, 32),
                                       static_cast<double>(shift));
      for (std::size_t d = 0; d < 32; ++d)
        head.keys.numbers[(p + static_cast<std::size_t>(shift)) * 32 + d] = static_cast<float>(key[d]);
      for (std::size_t d = 0; d < 32; ++d)
        head.values.numbers[(p + static_cast<std::size_t>(shift)) * 32 + d] =
            moved.heads[0].values.numbers[p * 32 + d];
    }
  for (auto& head : nearer.heads)
    for (auto* rows : {&head.keys, &head.values}) rows->store_all();
  const auto a = run_attend(moved, best_kernels().attend, 1, spans_of(moved, {{0, 100, shift}, {130, 201}}));
  const auto b = run_attend(nearer, best_kernels().attend, 1, spans_of(nearer, {{30, 130}, {130, 201}}));
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

TEST(AttendViews, AreListedOnceEach_ThePlainOneFirst) {
  const AttendCase c = rotary_case({.first = 300, .tokens = 10, .heads = 2, .kv_heads = 2, .head_dim = 32});
  EXPECT_EQ(view_points(spans_of(c, {})), (std::vector<ViewPoint>{{}}));
  EXPECT_EQ(view_points(spans_of(c, {{0, 310}})), (std::vector<ViewPoint>{{}}));
  EXPECT_EQ(view_points(spans_of(c, {{0, 4, 7, true, 63}, {10, 20, 7}, {30, 40, 7}, {50, 310}})),
            (std::vector<ViewPoint>{{}, {7, 63}, {7, std::nullopt}}));
  SpanLists uneven = spans_of(c, {{0, 310}});
  uneven[1][0].shift = 3;  // heads may differ
  EXPECT_EQ(view_points(uneven), (std::vector<ViewPoint>{{}, {3, std::nullopt}}));
  EXPECT_EQ((ViewPoint{5, 40}).seen_from(45), 40);
  EXPECT_EQ((ViewPoint{5, 40}).seen_from(44), 39);
  EXPECT_EQ((ViewPoint{5, std::nullopt}).seen_from(100), 95);
}

}  // namespace
}  // namespace kvtide
