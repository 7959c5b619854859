// What a procedural memory is made of: the rows of a head, and the references that judge them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "base/half.h"
#include "kvtide/error.h"
#include "state/procedural/head_rows.h"
#include "state/procedural/reference_rows.h"
#include "state/procedural/references.h"

namespace kvtide {
namespace {

constexpr std::int64_t kKeyBytes = 34, kValueBytes = 64;

void fill_row(HeadRows& rows, std::int64_t row, int number) {
  std::memset(rows.key(row), number, kKeyBytes);
  std::memset(rows.value(row), number + 100, kValueBytes);
}
void append_numbered(HeadRows& rows, int number) {
  const auto x = static_cast<float>(number);
  fill_row(rows, rows.append({number * 10, x * 0.5f, x + 1.0f, x * 3.0f}), number);
}
// "3 5 6": the rows in their order, by their numbers; says where key, value and notes disagree.
std::string numbers_of(const HeadRows& rows) {
  std::string text;
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    const int number = static_cast<int>(rows.key(row)[0]);
    text += (text.empty() ? "" : " ") + std::to_string(number);
    for (std::int64_t i = 0; i < kKeyBytes; ++i)
      if (static_cast<int>(rows.key(row)[i]) != number) text += "(key)";
    for (std::int64_t i = 0; i < kValueBytes; ++i)
      if (static_cast<int>(rows.value(row)[i]) != number + 100) text += "(value)";
    if (rows.note(row).position != number * 10) text += "(position)";
  }
  return text;
}

TEST(HeadRows, HoldWhatWasAppendedInItsOrder) {
  HeadRows rows(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 1000);
  for (const int number : {4, 7, 1}) append_numbered(rows, number);
  EXPECT_EQ(numbers_of(rows), "4 7 1");
  EXPECT_EQ(rows.note(1).bias, 3.5f);
  EXPECT_EQ(rows.note(1).count, 8.0f);
  EXPECT_EQ(rows.note(1).score, 21.0f);
  ASSERT_NE(rows.bias(), nullptr);
  EXPECT_EQ(rows.bias()[2], 0.5f);
}

TEST(HeadRows, OfExactRowsStandForThemselves) {
  for (const auto kind : {HeadRows::Kind::exact, HeadRows::Kind::exact_scored}) {
    HeadRows rows(kind, kKeyBytes, kValueBytes, 1000);
    append_numbered(rows, 4);
    EXPECT_EQ(rows.bias(), nullptr);
    EXPECT_EQ(rows.note(0).bias, 0.0f);
    EXPECT_EQ(rows.note(0).count, 1.0f);
    EXPECT_EQ(rows.note(0).score, kind == HeadRows::Kind::exact ? 0.0f : 12.0f);
  }
}

TEST(HeadRows, KeepOnlyTheListedRowsAndThoseFromANumberOn) {
  for (const auto kind : {HeadRows::Kind::exact, HeadRows::Kind::exact_scored, HeadRows::Kind::summaries}) {
    HeadRows rows(kind, kKeyBytes, kValueBytes, 1000);
    for (int number = 0; number < 9; ++number) append_numbered(rows, number);
    rows.keep(std::vector<std::int64_t>{0, 2, 3}, 6);
    EXPECT_EQ(numbers_of(rows), "0 2 3 6 7 8");
    rows.keep(std::vector<std::int64_t>{1}, 6);
    EXPECT_EQ(numbers_of(rows), "2");
    if (kind == HeadRows::Kind::summaries) {
      EXPECT_EQ(rows.bias()[0], 1.0f);
    }
    append_numbered(rows, 5);
    EXPECT_EQ(numbers_of(rows), "2 5");
    rows.clear();
    EXPECT_EQ(rows.rows(), 0);
    append_numbered(rows, 6);
    EXPECT_EQ(numbers_of(rows), "6");
  }
}

TEST(HeadRows, RowsThatWentReadAsZerosWhenTheirPlaceIsTakenAgain) {
  HeadRows rows(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 1000);
  for (int number = 1; number < 5; ++number) append_numbered(rows, number);
  rows.keep(std::vector<std::int64_t>{1}, 4);
  const std::int64_t row = rows.append({});
  for (std::int64_t i = 0; i < kKeyBytes; ++i) ASSERT_EQ(rows.key(row)[i], std::byte{0}) << i;
  for (std::int64_t i = 0; i < kValueBytes; ++i) ASSERT_EQ(rows.value(row)[i], std::byte{0}) << i;
}

TEST(HeadRows, AreRefusedBeyondWhatWasReserved) {
  HeadRows rows(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 3);
  for (int number = 0; number < 3; ++number) append_numbered(rows, number);
  try {
    rows.append({});
    ADD_FAILURE() << "a fourth row was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
  EXPECT_EQ(numbers_of(rows), "0 1 2");
}

TEST(HeadRows, ACloneIsIndependent) {
  HeadRows rows(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 1000);
  for (int number = 0; number < 4; ++number) append_numbered(rows, number);
  const auto clone = rows.clone();
  rows.keep(std::vector<std::int64_t>{3}, 4);
  append_numbered(*clone, 9);
  EXPECT_EQ(numbers_of(rows), "3");
  EXPECT_EQ(numbers_of(*clone), "0 1 2 3 9");
}

TEST(HeadRows, NeverHoldMoreThanTheirNumberOfRowsMay_ClonesIncluded) {
  for (const auto kind : {HeadRows::Kind::exact, HeadRows::Kind::exact_scored, HeadRows::Kind::summaries}) {
    auto rows = std::make_unique<HeadRows>(kind, kKeyBytes, kValueBytes, 4000);
    std::int64_t most = 0;
    const auto within = [&] {
      most = std::max(most, rows->rows());
      return rows->held_bytes() <= HeadRows::bytes_for(kind, kKeyBytes, kValueBytes, most);
    };
    for (int step = 0; step < 60; ++step) {
      for (int i = 0; i < 37; ++i) append_numbered(*rows, i);
      ASSERT_TRUE(within()) << "step " << step << " with " << rows->rows() << " rows";
      if (step % 7 == 6) {
        std::vector<std::int64_t> kept;
        for (std::int64_t row = 0; row < rows->rows() / 2; row += 2) kept.push_back(row);
        rows->keep(kept, rows->rows() / 2);
        ASSERT_TRUE(within());
      }
      if (step % 5 == 4) rows = rows->clone();
      ASSERT_TRUE(within()) << "the clone of step " << step << " with " << rows->rows() << " rows";
    }
    // Pages in full: 1,000 rows of 34 and 64 bytes take 9 and 16 pages.
    HeadRows exact(kind, kKeyBytes, kValueBytes, 4000);
    for (int i = 0; i < 1000; ++i) append_numbered(exact, i % 50);
    const std::int64_t notes = kind == HeadRows::Kind::exact          ? 4
                               : kind == HeadRows::Kind::exact_scored ? 8
                                                                      : 16;
    EXPECT_EQ(exact.held_bytes(), 25 * 4096 + 1024 * notes);
    exact.clear();
    EXPECT_LE(exact.held_bytes(), 1024 * notes) << "pages of rows that went are given back";
  }
}

// A query that says which position, layer and head it is of, in halves exactly.
std::vector<float> query_of(Pos position, int layer, int head) {
  return {static_cast<float>(position % 2048), static_cast<float>(layer * 10 + head), -1.0f, 0.5f};
}
void put(References& references, Pos position) {
  const References::Shape& shape = references.shape();
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer) {
    if (!references.wants(layer, position)) continue;
    std::vector<float> masses;
    for (int head = 0; head < shape.heads; ++head) {
      references.put_query(layer, position, head, query_of(position, layer, head).data());
      masses.push_back(static_cast<float>(position) + 0.25f * static_cast<float>(head + layer));
    }
    references.put_log_mass(layer, position, masses.data());
  }
}
void expect_there(const References& references, Pos position) {
  const References::Shape& shape = references.shape();
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer) {
    if (!shape.layers[static_cast<std::size_t>(layer)]) continue;
    for (int head = 0; head < shape.heads; ++head) {
      std::vector<float> got(4);
      references.query(layer, position, head, got.data());
      ASSERT_EQ(got, query_of(position, layer, head)) << position;
      ASSERT_EQ(references.log_mass(layer, position, head),
                static_cast<float>(position) + 0.25f * static_cast<float>(head + layer));
    }
  }
}
const References::Shape kShape{{true, false, true}, 3, 4, 4, 96};

TEST(References, WantEveryStridethTokenOfLayersThatKeepAny) {
  const References references(kShape);
  std::string wanted;
  for (Pos p = 0; p < 16; ++p) wanted += references.wants(0, p) ? 'x' : '.';
  EXPECT_EQ(wanted, "..x...x...x...x.");
  for (Pos p = 0; p < 16; ++p) EXPECT_FALSE(references.wants(1, p));
  EXPECT_EQ(references.available(2, 15), (std::vector<Pos>{2, 6, 10, 14}));
  EXPECT_EQ(references.available(3, 14), (std::vector<Pos>{6, 10}));
  EXPECT_EQ(references.available(7, 10), (std::vector<Pos>{}));
}

TEST(References, AreThereAsLongAsTheirSpan) {
  References references(kShape);
  for (Pos p = 0; p < 1000; ++p) {
    put(references, p);
    for (const Pos asked : references.available(std::max<Pos>(0, p + 1 - kShape.span), p + 1))
      expect_there(references, asked);
  }
}

TEST(References, AreSpreadEvenly) {
  const std::vector<Pos> ten{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(References::spread(ten, 1), (std::vector<Pos>{5}));
  EXPECT_EQ(References::spread(ten, 2), (std::vector<Pos>{2, 7}));
  EXPECT_EQ(References::spread(ten, 5), (std::vector<Pos>{1, 3, 5, 7, 9}));
  EXPECT_EQ(References::spread(ten, 10), ten);
  EXPECT_EQ(References::spread(ten, 11), ten);
}

TEST(References, SomeOfEveryBlockStay_ThinnedAsTheyGrowOld) {
  References references(kShape);
  constexpr Pos kBlock = 32;
  Pos read = 0;
  std::size_t most = 0;
  for (Pos block = 0; block < 200; ++block) {
    for (; read < (block + 1) * kBlock + 64; ++read) put(references, read);
    references.retain(block * kBlock, (block + 1) * kBlock);
    const std::vector<Pos>& kept = references.retained();
    most = std::max(most, kept.size());
    ASSERT_LE(kept.size(), static_cast<std::size_t>(References::kMostRetained));
    ASSERT_TRUE(std::is_sorted(kept.begin(), kept.end()));
    ASSERT_LT(kept.front(), kBlock) << "the first block is still asked";
    ASSERT_LT(kept.back(), (block + 1) * kBlock);
    for (const Pos p : kept) expect_there(references, p);
    for (const Pos p : references.available(read - kShape.span, read)) expect_there(references, p);
    if (block < 6) {
      ASSERT_EQ(kept.size(), static_cast<std::size_t>(8 * (block + 1))) << "nothing has to go yet";
    }
  }
  EXPECT_EQ(most, 48u);
  // Old and young text alike: no quarter of the text has more than half of what stays.
  for (int quarter = 0; quarter < 4; ++quarter) {
    const auto inside = std::count_if(references.retained().begin(), references.retained().end(),
                                      [&](Pos p) { return p * 4 / (200 * kBlock) == quarter; });
    EXPECT_GT(inside, 2) << quarter;
    EXPECT_LE(inside, 24) << quarter;
  }
}

TEST(References, HoldTheSameBytesAllTheTime) {
  // Two layers x (25 slots of the ring + 48) x 3 heads x (4 halves + a float).
  EXPECT_EQ(References::bytes_for(kShape), 2 * (25 + 48) * 3 * (4 * 2 + 4));
  References references(kShape);
  EXPECT_EQ(references.held_bytes(), References::bytes_for(kShape));
}

ProceduralSpec small_procedural(std::vector<double> frequencies) {
  ProceduralSpec spec;
  spec.window = 64;
  spec.block = 32;
  spec.query_heads = 4;
  spec.heads = {{HeadPlan{}, HeadPlan{}}};
  spec.frequencies = {std::move(frequencies)};
  return spec;
}

TEST(PlaceAhead, SpreadsReferencesOverPowersOfTwoAhead) {
  const std::vector<double> frequencies{1.0, 0.01};
  const ProceduralSpec spec = small_procedural(frequencies);
  const AskedAhead asked = place_ahead(spec, {10, 20, 30, 40, 50}, 1000, frequencies);
  EXPECT_EQ(asked.positions, (std::vector<Pos>{10, 20, 30, 40, 50}));
  // 999 + 2^0, 2^6, 2^3, 2^9, 2^1.5 rounded down
  const std::vector<double> placed{1000, 1063, 1007, 1511, 1001};
  ASSERT_EQ(asked.cosine.size(), 10u);
  for (std::size_t i = 0; i < placed.size(); ++i)
    for (std::size_t pair = 0; pair < 2; ++pair) {
      EXPECT_NEAR(asked.cosine[i * 2 + pair], std::cos(placed[i] * frequencies[pair]), 1e-6) << i;
      EXPECT_NEAR(asked.sine[i * 2 + pair], std::sin(placed[i] * frequencies[pair]), 1e-6) << i;
    }
}

TEST(PlaceAhead, GoesNoFurtherThanRowsAreSeen) {
  const std::vector<double> frequencies{0.001};
  ProceduralSpec spec = small_procedural(frequencies);
  spec.far_from = 64 + 32 + 256;  // 2^8 beyond window and block: the second reference stands 2^4 ahead
  const AskedAhead asked = place_ahead(spec, {1, 2}, 500, frequencies);
  EXPECT_NEAR(asked.sine[0], std::sin(500 * 0.001), 1e-6);
  EXPECT_NEAR(asked.sine[1], std::sin((499 + 16) * 0.001), 1e-6);
}

TEST(Ask, GivesTheQueriesOfTheHeadsThatShareAKvHead_HeadAfterHead) {
  const std::vector<double> frequencies{0.5, 0.25};
  const ProceduralSpec spec = small_procedural(frequencies);
  References references({{true}, 4, 4, 1, 96});
  for (const Pos p : {5, 6})
    for (int head = 0; head < 4; ++head) {
      const std::vector<float> query{static_cast<float>(p), 2.0f, static_cast<float>(head), 4.0f};
      references.put_query(0, p, head, query.data());
      const std::vector<float> masses{1.0f, 2.0f, 3.0f, static_cast<float>(p)};
      references.put_log_mass(0, p, masses.data());
    }
  const AskedAhead asked = place_ahead(spec, {5, 6}, 100, frequencies);
  const ReferenceRows rows = ask(best_kernels(), spec, references, asked, 0, 1, 16);
  ASSERT_EQ(rows.count, 4);
  EXPECT_EQ(rows.log_mass, (std::vector<float>{3.0f, 3.0f, 5.0f, 6.0f}));
  for (std::size_t i = 0; i < 4; ++i) {
    const Pos p = i % 2 == 0 ? 5 : 6;
    const int head = i < 2 ? 2 : 3;
    const double placed = i % 2 == 0 ? 100.0 : 163.0;
    // Pairs lie half a head apart: (position, head) and (2, 4).
    const double x[2] = {static_cast<double>(p), 2.0}, y[2] = {static_cast<double>(head), 4.0};
    for (std::size_t pair = 0; pair < 2; ++pair) {
      const double c = std::cos(placed * frequencies[pair]), s = std::sin(placed * frequencies[pair]);
      EXPECT_NEAR(rows.queries[i * 16 + pair], x[pair] * c - y[pair] * s, 1e-5) << i;
      EXPECT_NEAR(rows.queries[i * 16 + 2 + pair], y[pair] * c + x[pair] * s, 1e-5) << i;
    }
    for (std::size_t d = 4; d < 16; ++d) EXPECT_EQ(rows.queries[i * 16 + d], 0.0f) << "padding";
  }
}

}  // namespace
}  // namespace kvtide
