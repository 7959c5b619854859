// session_checkpoints_test.cpp: a turn of a long talk is edited, in memories that windows and recurrences move on in.
#include <gtest/gtest.h>

#include <memory>

#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::expect_refused;
using testing::random_tokens;
using testing::same_bits;

constexpr std::int64_t kEvery = 256;

struct Memory {
  std::string name;
  std::unique_ptr<Model> model;
  SessionOptions options;
};

SessionOptions small_options() {
  SessionOptions options;
  options.context = 5000;
  options.threads = 2;
  options.prefill_chunk = 200;
  options.checkpoints.every = kEvery;
  return options;
}

class SessionCheckpoints : public ::testing::Test {
 protected:
  SessionCheckpoints() {
    memories_.push_back(
        {"lfm2", std::make_unique<Model>(KVTIDE_GOLDENS "/folders/lfm2-f32"), small_options()});
    memories_.push_back(
        {"qwen3_5", std::make_unique<Model>(KVTIDE_GOLDENS "/folders/qwen3-5-f32"), small_options()});
    memories_.push_back(
        {"granite", std::make_unique<Model>(KVTIDE_GOLDENS "/folders/granite-hybrid-f32"), small_options()});
    memories_.push_back(
        {"mamba2", std::make_unique<Model>(KVTIDE_GOLDENS "/folders/mamba2-f32"), small_options()});
    memories_.push_back({"gemma3", std::make_unique<Model>(windows_.path()), small_options()});
    memories_.push_back({"rolling", std::make_unique<Model>(plain_.path()), small_options()});
    memories_.back().options.rolling = Rolling{4, 300};
    memories_.push_back({"gemma3, rolling", std::make_unique<Model>(windows_.path()), small_options()});
    memories_.back().options.rolling = Rolling{2, 100};
  }

  const testing::TemporaryFile windows_{
      "gemma3.gguf",
      testing::sample_model({.architecture = "gemma3", .layers = 7, .window = 20, .own_head = false})
          .build()
          .bytes};
  const testing::TemporaryFile plain_{"sample.gguf", testing::sample_model({.layers = 2}).build().bytes};
  std::vector<Memory> memories_;
};

TEST_F(SessionCheckpoints, AnEditedTurnReadsAgainWhatFollowsIt_AndFewerTokensThanTheDistance) {
  for (const Memory& memory : memories_) {
    const Model& model = *memory.model;
    const auto text = random_tokens(4000, model.vocabulary(), 1);
    const auto edited = random_tokens(30, model.vocabulary(), 2);
    // Turns of 150 to 250 tokens; where they begin.
    std::vector<Pos> turns;
    Session session(model, memory.options);
    for (Pos at = 0; at < 4000; at = std::min<Pos>(4000, at + 150 + (at * 7) % 100)) turns.push_back(at);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const Pos end = i + 1 < turns.size() ? turns[i + 1] : 4000;
      session.read(std::span(text).subspan(static_cast<std::size_t>(turns[i]),
                                           static_cast<std::size_t>(end - turns[i])));
    }
    const Pos third_last = turns[turns.size() - 3];
    std::int64_t again = 0;
    ReadOptions read;
    read.progress = [&](std::int64_t done) {
      again = done;
      return true;
    };
    const TransitionRecord record = session.truncate(third_last, read);
    EXPECT_EQ(record.read_again, again);
    EXPECT_LT(record.read_again, kEvery) << memory.name;
    EXPECT_EQ(session.position(), third_last);
    EXPECT_TRUE(session.logits().empty());
    Session fresh(model, memory.options);
    fresh.read(std::span(text).first(static_cast<std::size_t>(third_last)));
    EXPECT_EQ(session.tokens(), fresh.tokens());
    EXPECT_EQ(session.checkpoints(), fresh.checkpoints());
    EXPECT_TRUE(same_bits(all_logits(session, edited), all_logits(fresh, edited))) << memory.name;
  }
}

TEST_F(SessionCheckpoints, EveryLengthGoesOnWithTheBitsOfASessionThatNeverWentFurther) {
  for (Memory& memory : memories_) {
    const Model& model = *memory.model;
    memory.options.checkpoints.every = 50;
    const auto text = random_tokens(500, model.vocabulary(), 3);
    const auto wanted = all_logits(model, memory.options, text);
    const auto vocabulary = static_cast<std::size_t>(model.vocabulary());
    Session whole(model, memory.options);
    whole.read(text);
    for (std::size_t length = 1; length < text.size(); length += length < 440 ? 17 : 1) {
      Session session = whole.fork();
      EXPECT_LT(session.truncate(static_cast<Pos>(length)).read_again, 50) << memory.name << " at " << length;
      session.read(std::span(text).subspan(length, 1));
      ASSERT_TRUE(same_bits(session.logits(), std::span(wanted).subspan(length * vocabulary, vocabulary)))
          << memory.name << " at " << length;
    }
  }
}

TEST_F(SessionCheckpoints, TheBitsAreThoseOfASessionWithoutThem_ForAllChunks_AndGuessesStopAtThem) {
  for (Memory& memory : memories_) {
    const Model& model = *memory.model;
    const auto text = random_tokens(300, model.vocabulary(), 4);
    SessionOptions plain = memory.options;
    plain.checkpoints = {};
    const auto wanted = all_logits(model, plain, text);
    memory.options.checkpoints.every = 10;
    for (const std::int64_t chunk : {1, 7, 200}) {
      memory.options.prefill_chunk = chunk;
      EXPECT_TRUE(same_bits(all_logits(model, memory.options, text), wanted)) << memory.name;
    }
    Session session(model, memory.options);
    session.read(std::span(text).first(95));
    EXPECT_EQ(session.read_while(std::span(text).subspan(95, 16), [](auto) { return true; }), 5);
    EXPECT_EQ(session.checkpoints().back(), 100);
  }
}

TEST_F(SessionCheckpoints, GoThroughSnapshotsAndForks_AndTheSessionSaysHowManyMoreAreMade) {
  for (const Memory& memory : memories_) {
    const Model& model = *memory.model;
    const testing::TemporaryFolder folder;
    const auto text = random_tokens(2000, model.vocabulary(), 5);
    Session session(model, memory.options);
    session.read(text);
    session.save(folder.path("talk.kv"));
    SessionOptions none = memory.options;
    none.checkpoints.every = 0;
    Session restored(model, none);
    restored.load(folder.path("talk.kv"));
    EXPECT_EQ(restored.checkpoints(), session.checkpoints());
    EXPECT_GT(restored.memory().kv_checkpoints, 0) << memory.name;
    restored.read(std::span(text).first(600));
    EXPECT_EQ(restored.checkpoints(), session.checkpoints());
    Session fork = session.fork();
    EXPECT_LT(fork.truncate(1500).read_again, kEvery);
    EXPECT_LT(restored.truncate(1500).read_again, kEvery);
    const auto more = random_tokens(20, model.vocabulary(), 6);
    EXPECT_TRUE(same_bits(all_logits(fork, more), all_logits(restored, more))) << memory.name;
    EXPECT_EQ(session.position(), 2000);
  }
}

TEST_F(SessionCheckpoints, WithoutOneEverythingIsReadAgain_AndOneIsMadeWhenAskedFor) {
  for (Memory& memory : memories_) {
    const Model& model = *memory.model;
    memory.options.checkpoints.every = 0;
    const auto text = random_tokens(2000, model.vocabulary(), 7);
    Session session(model, memory.options);
    session.read(std::span(text).first(850));
    EXPECT_TRUE(session.checkpoint());
    session.read(std::span(text).subspan(850));
    EXPECT_EQ(session.truncate(1000).read_again, 150);
    session.read(std::span(text).subspan(1000));
    EXPECT_EQ(session.truncate(700).read_again, 700) << memory.name;
    EXPECT_EQ(session.position(), 700);
    expect_refused(ErrorCode::invalid_argument, "the state has read 700", [&] { session.truncate(701); });
    expect_refused(ErrorCode::invalid_argument, "cannot truncate to -1", [&] { session.truncate(-1); });
  }
}

TEST_F(SessionCheckpoints, AReadThatIsStoppedLeavesTheTokensOfWholeChunks) {
  const Memory& memory = memories_[0];
  SessionOptions options = memory.options;
  options.prefill_chunk = 16;
  const auto text = random_tokens(700, memory.model->vocabulary(), 8);
  Session session(*memory.model, options);
  session.read(text);
  ReadOptions read;
  read.progress = [](std::int64_t) { return false; };
  expect_refused(ErrorCode::cancelled, "stopped after 16 of 38 tokens", [&] { session.truncate(550, read); });
  EXPECT_EQ(session.position(), 528);
  EXPECT_EQ(session.tokens(), std::vector<TokenId>(text.begin(), text.begin() + 528));
}

TEST(SessionCheckpointsOfSummaries, AProceduralMemoryIsReadAgainFromTheStart) {
  const testing::TemporaryFile file("sample.gguf", testing::sample_model({.layers = 2}).build().bytes);
  const Model model(file.path());
  SessionOptions options = small_options();
  options.procedural = ProceduralOptions{};
  options.procedural->window = options.procedural->block = 64;
  const auto text = random_tokens(1000, model.vocabulary(), 9),
             more = random_tokens(10, model.vocabulary(), 10);
  Session session(model, options), fresh(model, options);
  session.read(text);
  EXPECT_FALSE(session.checkpoint());
  EXPECT_EQ(session.truncate(300).read_again, 300);
  fresh.read(std::span(text).first(300));
  EXPECT_TRUE(same_bits(all_logits(session, more), all_logits(fresh, more)));
}

}  // namespace
}  // namespace kvtide
