// The bits of an answer do not depend on its neighbours, on what the cache spares, or on what was evicted; and the memory
// of all answers stays within one budget.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/work/scheduler.h"
#include "tests/engine/logits.h"
#include "tests/serve/asking.h"

namespace kvtide {
namespace {

using serve::AnswerFigures;
using serve::AnswerPiece;
using serve::AnswerSpec;
using serve::Scheduler;
using serve::WorkOptions;

struct Told final : serve::AnswerListener {
  std::vector<std::vector<TokenId>> tokens = std::vector<std::vector<TokenId>>(4);
  std::vector<double> logprobs;
  AnswerFigures figures;
  std::optional<Error> error;
  int begins = 0, dones = 0, ends = 0;
  bool left = false, waits = false;

  void begun(const AnswerFigures&) override { ++begins; }
  void piece(AnswerPiece piece) override {
    auto& mine = tokens[static_cast<std::size_t>(piece.choice)];
    mine.insert(mine.end(), piece.tokens.begin(), piece.tokens.end());
    for (const auto& token : piece.logprobs) logprobs.push_back(token.logprob);
  }
  void ended(int, StopReason, const std::string&) override { ++ends; }
  void done(const AnswerFigures& f) override {
    figures = f;
    ++dones;
  }
  void failed(const Error& e) override { error = e; }
  bool gone() const override { return left; }
  bool stalled() const override { return waits; }
};

WorkOptions small_work() { return testing::small_service().work; }

AnswerSpec spec_of(std::vector<TokenId> prompt, std::int64_t tokens, std::uint64_t seed) {
  AnswerSpec spec;
  spec.prompt = std::move(prompt);
  spec.max_tokens = tokens;
  spec.ignore_end = true;
  spec.sampler.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
  spec.sampler.seed = seed;
  spec.top_logprobs = 0;
  return spec;
}

class SchedulerTest : public ::testing::Test {
 protected:
  // By itself, in a server that has never seen anything.
  static Told alone(const Model& model, const AnswerSpec& spec, const WorkOptions& options = small_work()) {
    Scheduler scheduler({&model}, options);
    auto told = std::make_shared<Told>();
    EXPECT_FALSE(scheduler.submit(0, spec, told));
    while (scheduler.step()) {
    }
    return *told;
  }

  // memories: one of them for each answer, at random.
  void mixes(const Model& model, int count, std::int64_t kv_budget = std::int64_t{1} << 20,
             const std::vector<serve::MemoryChoice>& memories = {{}});
  void edits(const Model& model, const serve::MemoryChoice& memory);

  const testing::TemporaryFile file_ = testing::chat_model_file();
  const Model model_{file_.path()};
};

TEST_F(SchedulerTest, AnAnswerIsWhatASessionAloneWrites) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const AnswerSpec spec = spec_of(testing::random_tokens(70, 64, seed), 20, seed);
    SessionOptions options;
    options.threads = 1;
    Session session(model_, options);
    session.read(spec.prompt);
    GenerateOptions how;
    how.max_tokens = 20;
    how.sampler = spec.sampler;
    const Generated wanted = generate(session, how);
    const Told told = alone(model_, spec);
    ASSERT_GE(told.tokens[0].size(), wanted.tokens.size());
    EXPECT_TRUE(std::equal(wanted.tokens.begin(), wanted.tokens.end(), told.tokens[0].begin()));
  }
}

// Requests that begin alike and apart come at different times; some leave, some read nothing for a while; the budget is
// small enough that cached states have to go.
void SchedulerTest::mixes(const Model& model, int count, std::int64_t kv_budget,
                          const std::vector<serve::MemoryChoice>& memories) {
  WorkOptions options = small_work();
  options.parallel = 4;
  options.kv_budget = kv_budget;
  Scheduler scheduler({&model}, options);
  testing::Rng rng(7);
  std::int64_t spared = 0;
  for (int mix = 0; mix < count; ++mix) {
    const auto trunk =
        testing::random_tokens(20 + rng.below(60), 64, 100 + static_cast<std::uint64_t>(mix % 5));
    std::vector<std::pair<AnswerSpec, std::shared_ptr<Told>>> asked;
    for (int i = 0; i < 5; ++i) {
      std::vector<TokenId> prompt(trunk.begin(),
                                  trunk.begin() + static_cast<std::ptrdiff_t>(rng.below(trunk.size())));
      const auto rest = testing::random_tokens(1 + rng.below(40), 64, rng.below(1000));
      prompt.insert(prompt.end(), rest.begin(), rest.end());
      asked.emplace_back(
          spec_of(std::move(prompt), static_cast<std::int64_t>(1 + rng.below(12)), rng.below(100)),
          std::make_shared<Told>());
      asked.back().first.memory = memories[rng.below(memories.size())];
      ASSERT_FALSE(scheduler.submit(0, asked.back().first, asked.back().second));
      for (std::size_t steps = rng.below(6); steps > 0; --steps) scheduler.step();
      if (rng.below(6) == 0) asked[rng.below(asked.size())].second->left = true;
      asked.back().second->waits = rng.below(4) == 0;
      ASSERT_LE(scheduler.counts().kv_bytes, options.kv_budget);
    }
    for (const auto& [spec, told] : asked) told->waits = false;
    while (scheduler.step()) ASSERT_LE(scheduler.counts().kv_bytes, options.kv_budget);
    for (const auto& [spec, told] : asked) {
      ASSERT_FALSE(told->error) << told->error->message();
      if (told->left && told->dones == 0) continue;
      ASSERT_EQ(told->dones, 1);
      const Told wanted = alone(model, spec);
      ASSERT_EQ(told->tokens[0], wanted.tokens[0]) << "mix " << mix;
      ASSERT_EQ(told->logprobs, wanted.logprobs) << "mix " << mix << ": to the last bit";
      spared += told->figures.cached_tokens;
    }
  }
  EXPECT_GT(spared, 0) << "the cache spared nothing";
  EXPECT_EQ(scheduler.counts().running, 0);
  EXPECT_GT(scheduler.counts().evicted, 0) << "nothing had to go";
}

TEST_F(SchedulerTest, TheBitsOfAnAnswerDoNotDependOnItsNeighbours) { mixes(model_, 100); }

TEST_F(SchedulerTest, NorInAModelWhoseWindowsMoveOn) {
  const testing::TemporaryFile file = testing::chat_model_file(testing::sample_with_windows());
  const Model model(file.path());
  mixes(model, 50);
}

TEST_F(SchedulerTest, NorWhereEveryAnswerHasAMemoryOfItsOwn) {
  std::vector<serve::MemoryChoice> memories(4);
  memories[1].rolling = Rolling{.sinks = 2, .window = 16};
  ProceduralOptions& past = memories[2].procedural.emplace();
  past.budget = std::int64_t{1} << 20;
  past.window = 32;
  past.block = 16;
  past.rows = 4;
  past.summaries = 2;
  past.levels = 2;
  memories[3].attention_size = 24;
  mixes(model_, 50, std::int64_t{3} << 20, memories);
}

TEST_F(SchedulerTest, AMemoryThatForgetsReadsMoreThanTheContext) {
  AnswerSpec spec = spec_of(testing::random_tokens(700, 64, 1), 6, 2);
  auto told = std::make_shared<Told>();
  Scheduler scheduler({&model_}, small_work());
  EXPECT_THROW(scheduler.submit(0, spec, told), Error);
  spec.memory.rolling = Rolling{.sinks = 4, .window = 64};
  ASSERT_FALSE(scheduler.submit(0, spec, told));
  while (scheduler.step()) {
  }
  EXPECT_EQ(told->tokens[0].size(), 6u);
  spec.memory.rolling = Rolling{.sinks = 4, .window = 4096};
  EXPECT_THROW(scheduler.submit(0, spec, told), Error) << "the context is smaller";
}

TEST_F(SchedulerTest, ChoicesAreForksOfOnePrompt) {
  AnswerSpec spec = spec_of(testing::random_tokens(70, 64, 3), 10, 11);
  spec.choices = 3;
  const Told told = alone(model_, spec);
  EXPECT_EQ(told.ends, 3);
  EXPECT_EQ(told.figures.written_tokens, 30);
  for (std::size_t i = 0; i < 3; ++i) {
    AnswerSpec one = spec;
    one.choices = 1;
    one.sampler.seed += i;
    EXPECT_EQ(told.tokens[i], alone(model_, one).tokens[0]);
  }
}

TEST_F(SchedulerTest, ATextThatGoesOnIsNotReadAgain) {
  Scheduler scheduler({&model_}, small_work());
  std::vector<TokenId> text = testing::random_tokens(100, 64, 1);
  for (int turn = 0; turn < 3; ++turn) {
    auto told = std::make_shared<Told>();
    ASSERT_FALSE(scheduler.submit(0, spec_of(text, 10, 0), told));
    while (scheduler.step()) {
    }
    ASSERT_EQ(told->dones, 1);
    EXPECT_GE(told->figures.cached_tokens, turn == 0 ? 0 : static_cast<std::int64_t>(text.size()) - 21);
    text.insert(text.end(), told->tokens[0].begin(), told->tokens[0].end());
    const auto more = testing::random_tokens(20, 64, static_cast<std::uint64_t>(50 + turn));
    text.insert(text.end(), more.begin(), more.end());
  }
}

TEST_F(SchedulerTest, TextsAreKeptForAsLongAsTheBudgetHoldsThem) {
  WorkOptions options = small_work();
  options.kv_budget = std::int64_t{1} << 30;
  Scheduler scheduler({&model_}, options);
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t session = 0; session < 300; ++session) {
      auto told = std::make_shared<Told>();
      ASSERT_FALSE(scheduler.submit(0, spec_of(testing::random_tokens(20, 64, session), 1, 0), told));
      while (scheduler.step()) {
      }
      ASSERT_GE(told->figures.cached_tokens, 19 * round) << session;
    }
}

// Three kinds of memory that move on: a turn of a long talk is edited, and what came before it is not read again.
void SchedulerTest::edits(const Model& model, const serve::MemoryChoice& memory) {
  constexpr std::int64_t kEvery = 128;
  WorkOptions options = small_work();
  options.kv_budget = std::int64_t{64} << 20;
  options.context = 8192;
  options.checkpoints.every = kEvery;
  Scheduler scheduler({&model}, options);
  const auto ask = [&](const std::vector<TokenId>& prompt) {
    AnswerSpec spec = spec_of(prompt, 10, 0);
    spec.memory = memory;
    auto told = std::make_shared<Told>();
    EXPECT_FALSE(scheduler.submit(0, spec, told));
    while (scheduler.step()) {
    }
    EXPECT_EQ(told->dones, 1);
    const Told wanted = alone(model, spec, options);
    EXPECT_EQ(told->tokens[0], wanted.tokens[0]);
    EXPECT_EQ(told->logprobs, wanted.logprobs) << "to the last bit";
    return *told;
  };
  std::vector<TokenId> text;
  std::vector<std::size_t> turns;  // where they begin
  const auto vocabulary = model.vocabulary();
  for (std::uint64_t turn = 0; turn < 12; ++turn) {
    turns.push_back(text.size());
    const auto more = testing::random_tokens(270 + 13 * turn, vocabulary, turn + 1);
    text.insert(text.end(), more.begin(), more.end());
    const Told told = ask(text);
    EXPECT_GE(told.figures.cached_tokens, static_cast<std::int64_t>(turns.back()) - 1);
    text.insert(text.end(), told.tokens[0].begin(), told.tokens[0].end());
  }
  EXPECT_GT(text.size(), 3000u);
  for (const std::size_t back : {3u, 1u, 5u}) {
    std::vector<TokenId> edited(text.begin(),
                                text.begin() + static_cast<std::ptrdiff_t>(turns[turns.size() - back] + 40));
    const auto other = testing::random_tokens(50, vocabulary, 100 + back);
    edited.insert(edited.end(), other.begin(), other.end());
    const std::int64_t cached = ask(edited).figures.cached_tokens;
    EXPECT_GT(cached, static_cast<std::int64_t>(edited.size()) - 50 - kEvery) << back << " turns back";
  }
  EXPECT_LE(scheduler.counts().kv_bytes, options.kv_budget);
}

TEST_F(SchedulerTest, AnEditedTurnReadsWhatFollowsIt_WhereWindowsMoveOn) {
  testing::SampleModel sample = testing::sample_with_windows();
  const testing::TemporaryFile file = testing::chat_model_file(sample);
  edits(Model(file.path()), {});
}

TEST_F(SchedulerTest, AnEditedTurnReadsWhatFollowsIt_InARollingMemory) {
  edits(model_, {.rolling = Rolling{.sinks = 2, .window = 64}, .procedural = {}, .attention_size = {}});
}

TEST_F(SchedulerTest, AnEditedTurnReadsWhatFollowsIt_WhereConvolutionsCarryMoreThanRows) {
  edits(Model(KVTIDE_GOLDENS "/folders/lfm2-f32"), {});
  edits(Model(KVTIDE_GOLDENS "/folders/qwen3-5-f32"), {});
}

TEST_F(SchedulerTest, WhatWaitsForTheSameBeginningReadsItOnce) {
  Scheduler scheduler({&model_}, small_work());
  std::vector<std::shared_ptr<Told>> told;
  std::vector<TokenId> text = testing::random_tokens(300, 64, 1);
  for (TokenId i = 0; i < 4; ++i) {
    told.push_back(std::make_shared<Told>());
    text.back() = i;
    ASSERT_FALSE(scheduler.submit(0, spec_of(text, 4, 0), told.back()));
  }
  while (scheduler.step()) {
  }
  EXPECT_EQ(told[0]->figures.cached_tokens, 0);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(told[i]->figures.cached_tokens, 299);
}

TEST_F(SchedulerTest, SaysWhatItCannotTake) {
  WorkOptions options = small_work();
  options.parallel = 1;
  options.queue = 1;
  options.kv_budget = std::int64_t{3} << 20;
  Scheduler scheduler({&model_}, options);
  const auto submit = [&](std::size_t prompt, std::int64_t tokens) {
    return scheduler.submit(0, spec_of(testing::random_tokens(prompt, 64, 1), tokens, 0),
                            std::make_shared<Told>());
  };
  try {
    submit(600, 4);
    FAIL() << "a prompt longer than the context";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::context_full);
  }
  EXPECT_FALSE(submit(10, 4));
  EXPECT_FALSE(submit(10, 4));
  const auto busy = submit(10, 4);
  ASSERT_TRUE(busy);
  EXPECT_GT(busy->retry_after, 0);
  EXPECT_EQ(scheduler.counts().refused, 1);
  while (scheduler.step()) {
  }
  EXPECT_FALSE(submit(10, 4)) << "there is room again";
}

TEST_F(SchedulerTest, AThreadOfItsOwnServesAndDrains) {
  Scheduler scheduler({&model_}, small_work());
  scheduler.start();
  std::vector<std::shared_ptr<Told>> told;
  for (std::uint64_t i = 0; i < 6; ++i) {
    told.push_back(std::make_shared<Told>());
    ASSERT_FALSE(scheduler.submit(0, spec_of(testing::random_tokens(50, 64, i), 10, i), told.back()));
  }
  std::size_t lanes = 0;
  scheduler.between_steps([&](std::vector<serve::Lane>& all) { lanes = all.size(); });
  EXPECT_EQ(lanes, 1u);
  EXPECT_TRUE(scheduler.drain(60.0));
  for (const auto& one : told) EXPECT_EQ(one->dones, 1);
  EXPECT_TRUE(scheduler.submit(0, spec_of({1, 2, 3}, 1, 0), std::make_shared<Told>()))
      << "nothing new begins";
}

}  // namespace
}  // namespace kvtide
