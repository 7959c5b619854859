// Rows ranked by what a model looks up when it reads their block again: what is kept, and that nothing else changes.
#include <gtest/gtest.h>

#include <cmath>

#include "kvtide/session.h"
#include "state/procedural/repetition.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::random_tokens;
using testing::same_bits;

class RepetitionTest : public ::testing::Test {
 protected:
  static SessionOptions options(RowScore score) {
    SessionOptions options;
    options.threads = 1;
    ProceduralOptions& o = options.procedural.emplace();
    o.window = 96;
    o.block = 96;
    o.rows = 24;
    o.summaries = 2;
    o.levels = 2;
    o.score = score;
    return options;
  }

  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model({.gain = 2.0f}).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = random_tokens(700, model_.vocabulary(), 5);
};

TEST_F(RepetitionTest, KeepsOtherRows_AndNothingOfTheRepetitionItself) {
  Session session(model_, options(RowScore::repetition)), mixed(model_, options(RowScore::mixed));
  const auto again = all_logits(session, text_), usual = all_logits(mixed, text_);
  const auto until = static_cast<std::size_t>((96 + 96) * model_.vocabulary());
  EXPECT_TRUE(same_bits(std::span(again).first(until), std::span(usual).first(until)));
  EXPECT_FALSE(same_bits(again, usual)) << "the same rows were kept";
  EXPECT_EQ(session.position(), static_cast<Pos>(text_.size()));
  EXPECT_EQ(session.tokens(), text_);
  const auto counts = *session.procedural_counts(), of_mixed = *mixed.procedural_counts();
  EXPECT_EQ(counts.outlier_rows, of_mixed.outlier_rows);
  EXPECT_EQ(counts.window_rows, of_mixed.window_rows);
  EXPECT_LE(counts.bytes_peak, session.procedural_plan()->total());
}

TEST_F(RepetitionTest, ForksSnapshotsAndNeighboursInABatchChangeNoBit) {
  const std::span<const TokenId> text = text_;
  Session whole(model_, options(RowScore::repetition)), parted(model_, options(RowScore::repetition)),
      together(model_, options(RowScore::repetition)), neighbour(model_, options(RowScore::mixed));
  const auto wanted = all_logits(whole, text);
  parted.read(text.first(300));
  Session fork = parted.fork();
  const testing::TemporaryFolder folder;
  parted.save(folder / "a.kv");
  Session loaded(model_, options(RowScore::mixed));
  loaded.load(folder / "a.kv");
  const auto rest = std::span(wanted).subspan(static_cast<std::size_t>(300 * model_.vocabulary()));
  for (Session* one : {&parted, &fork, &loaded})
    EXPECT_TRUE(same_bits(all_logits(*one, text.subspan(300)), rest));

  BatchOptions threads;
  threads.threads = 3;
  Batch batch(model_, threads);
  for (std::size_t at = 0, beside = 0; at < text.size();) {
    const std::size_t size = std::min<std::size_t>(25, text.size() - at);
    const std::vector<Batch::Item> items{{&neighbour, text.subspan(beside, 10), false},
                                         {&together, text.subspan(at, size), true}};
    const auto outcomes = batch.step(items);
    for (const auto& outcome : outcomes) {
      ASSERT_FALSE(outcome.error);
    }
    beside += static_cast<std::size_t>(outcomes[0].read);
    at += static_cast<std::size_t>(outcomes[1].read);
  }
  EXPECT_TRUE(
      same_bits(together.logits(), std::span(wanted).last(static_cast<std::size_t>(model_.vocabulary()))));
}

TEST_F(RepetitionTest, ABudgetHolds_AlsoWhereManyBlocksAreReadAgainAtOnce) {
  for (const std::int64_t budget : {400'000, 600'000, 900'000}) {
    SessionOptions o = options(RowScore::repetition);
    o.procedural = ProceduralOptions{};
    o.procedural->score = RowScore::repetition;
    o.procedural->budget = budget;
    Session session(model_, o);
    const auto text = random_tokens(3000, model_.vocabulary(), 7);
    session.read(text);
    EXPECT_GT(session.procedural_counts()->blocks_sealed, 0);
    EXPECT_LE(session.procedural_counts()->bytes_peak, budget);
  }
}

// One head of 16 dimensions, its rows in two spans, against the definition.
TEST(Repetition, TakesTheLargestShareOfAnyQuery) {
  constexpr int kDim = 16;
  constexpr std::int64_t kRows = 40, kTokens = 5;
  std::vector<float> keys(kRows * kDim), values(kRows * kDim), q(2 * kTokens * kDim), mass(2 * kTokens);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = std::sin(static_cast<float>(i * i % 101));
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::cos(static_cast<float>(i * i % 97));
  for (std::size_t i = 0; i < mass.size(); ++i) mass[i] = 3.0f + static_cast<float>(i) / 8.0f;
  std::vector<std::vector<Span>> spans(1);
  for (const auto& [first, last] : {std::pair<Pos, Pos>{100, 117}, {117, 140}}) {
    Span& span = spans[0].emplace_back();
    span.keys = reinterpret_cast<const std::byte*>(keys.data() + (first - 100) * kDim);
    span.values = span.keys;
    span.key_type = span.value_type = DType::f32;
    span.key_stride = span.value_stride = kDim * sizeof(float);
    span.rows = last - first;
    span.first = first;
  }
  const float* const rows[] = {q.data()};
  const ViewPoint views[] = {{}};
  const AttendShape shape{.first = 200,
                          .tokens = kTokens,
                          .heads = 2,
                          .kv_heads = 1,
                          .head_dim = kDim,
                          .scale = 0.25f,
                          .window = {}};
  Repetition repetition({104, 136}, 1);
  ThreadPool pool(2);
  repetition.look(pool, best_kernels(), 0, {shape, views, rows, spans}, mass.data());
  const auto shares = repetition.shares(0, 0);
  ASSERT_EQ(shares.size(), 32u);
  for (std::int64_t j = 0; j < 32; ++j) {
    float most = -1e30f;
    for (std::size_t i = 0; i < mass.size(); ++i) {
      float dot = 0.0f;
      for (std::size_t d = 0; d < kDim; ++d)
        dot += q[i * kDim + d] * keys[static_cast<std::size_t>(4 + j) * kDim + d];
      most = std::max(most, dot * 0.25f - mass[i]);
    }
    EXPECT_NEAR(shares[static_cast<std::size_t>(j)], most, 1e-4f) << "row " << j;
  }
}

}  // namespace
}  // namespace kvtide
