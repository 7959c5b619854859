// The references of a procedural memory: how long they stay, and where they are placed when they judge.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/codec.h"
#include "kernels/hadamard.h"
#include "state/procedural/reference_rows.h"
#include "state/procedural/references.h"

namespace kvtide {
namespace {

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
      references.put_query(best_kernels(), layer, position, head, query_of(position, layer, head).data());
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
      references.query(best_kernels(), references.place(layer, position), head, got.data());
      ASSERT_EQ(got, query_of(position, layer, head)) << position;
      ASSERT_EQ(references.log_mass(references.place(layer, position), head),
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
    references.retain(block * kBlock, (block + 1) * kBlock, read);
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

TEST(References, InEightBitsAreWhatRowsInEightBitsWouldBe) {
  References::Shape shape = kShape;
  shape.head_dim = 64;
  shape.type = DType::q8_0;
  References references(shape);
  std::vector<float> query(64), got(64), expected(64);
  for (std::size_t d = 0; d < query.size(); ++d) query[d] = std::sin(static_cast<float>(d));
  std::vector<std::byte> row(static_cast<std::size_t>(dtype_bytes(DType::q8_0, 64)));
  encode_row(DType::q8_0, query.data(), 64, row.data());
  decode_row(DType::q8_0, row.data(), 64, expected.data());
  references.put_query(best_kernels(), 2, 6, 1, query.data());
  references.query(best_kernels(), references.place(2, 6), 1, got.data());
  EXPECT_EQ(got, expected);
  references.retain(0, 96, 96);
  references.query(best_kernels(), references.place(2, 6), 1, got.data());
  EXPECT_EQ(got, expected) << "among those that stay";
  EXPECT_EQ(References::bytes_for(shape), 2 * (25 + 48) * 3 * (68 + 4));
}

TEST(References, InFourBitsAreHadamardTransforms) {
  References::Shape shape = kShape;
  shape.head_dim = 64;
  shape.type = DType::q4_0;
  References references(shape);
  std::vector<float> query(64), got(64), expected(64);
  for (std::size_t d = 0; d < query.size(); ++d) query[d] = std::sin(static_cast<float>(d));
  expected = query;
  std::vector<std::byte> row(static_cast<std::size_t>(dtype_bytes(DType::q4_0, 64)));
  hadamard(expected.data(), 64);
  encode_row(DType::q4_0, expected.data(), 64, row.data());
  decode_row(DType::q4_0, row.data(), 64, expected.data());
  hadamard(expected.data(), 64);
  references.put_query(best_kernels(), 2, 6, 1, query.data());
  references.query(best_kernels(), references.place(2, 6), 1, got.data());
  EXPECT_EQ(got, expected);
  EXPECT_NE(got, query);
  EXPECT_EQ(References::bytes_for(shape), 2 * (25 + 48) * 3 * (36 + 4));
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
  spec.plans = {{HeadPlan{}, HeadPlan{}}};
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
      references.put_query(best_kernels(), 0, p, head, query.data());
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
