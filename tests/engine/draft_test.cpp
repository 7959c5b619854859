// draft_test.cpp: guesses that are read on trial: what was right has the bits of reading it alone, what was wrong leaves
// nothing behind, in memories of every kind; and answers are the same with drafts and without.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/suffix_draft.h"
#include "kvtide/generate.h"
#include "tests/engine/logits.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::expect_refused;
using testing::random_tokens;
using testing::same_bits;

struct Memory {
  const char* name;
  SessionOptions options;
};

std::vector<Memory> memories() {
  SessionOptions plain;
  plain.threads = 2;
  plain.context = 400;
  plain.prefill_chunk = 32;
  std::vector<Memory> all = {{"full", plain},       {"q8_0", plain},     {"rolling", plain},
                             {"procedural", plain}, {"adapting", plain}, {"chunks of 4", plain}};
  all[1].options.key_type = all[1].options.value_type = ElementType::q8_0;
  all[2].options.rolling = Rolling{2, 40};
  ProceduralOptions& o = all[3].options.procedural.emplace();
  o.window = 64;
  o.block = 32;
  o.rows = 8;
  o.summaries = 2;
  o.levels = 2;
  all[4].options.auto_attention = AutoAttention{64, 256};
  all[5].options.prefill_chunk = 4;
  return all;
}

std::vector<testing::Bytes> models() {
  testing::SampleModel llama, gemma;
  llama.types = {DType::q8_0, DType::q4_1};
  llama.head_dim = gemma.head_dim = 32;
  gemma.architecture = "gemma3";
  gemma.window = 20;
  gemma.layers = 7;
  gemma.own_head = false;
  return {testing::sample_model(llama).build().bytes, testing::sample_model(gemma).build().bytes};
}

// Reads the text with guesses behind every token, some right and some wrong.
void expect_bits_of_reading_alone(const Model& model, const Memory& memory, std::uint64_t seed) {
  const std::int64_t vocabulary = model.vocabulary();
  const auto text = random_tokens(300, vocabulary, seed);
  const auto wanted = all_logits(model, memory.options, text);
  Session session(model, memory.options);
  testing::Rng rng(seed);
  for (std::size_t at = 0; at < text.size();) {
    std::vector<TokenId> tried = {text[at]};
    const auto right = static_cast<std::size_t>(rng.below(6));
    for (std::size_t i = 1; i <= right && at + i < text.size(); ++i) tried.push_back(text[at + i]);
    for (std::int64_t i = rng.below(4); i > 0; --i)
      tried.push_back(static_cast<TokenId>(rng.below(vocabulary)));
    std::size_t asked = 0;
    const std::int64_t kept = session.read_while(tried, [&](std::span<const float> logits) {
      EXPECT_TRUE(same_bits(logits, std::span(wanted).subspan((at + asked) * vocabulary, vocabulary)))
          << memory.name << " at " << at << " + " << asked;
      ++asked;
      return at + asked < text.size() && tried[asked] == text[at + asked];
    });
    ASSERT_GE(kept, 1);
    at += static_cast<std::size_t>(kept);
    ASSERT_EQ(session.position(), static_cast<Pos>(at));
    ASSERT_TRUE(same_bits(session.logits(), std::span(wanted).subspan((at - 1) * vocabulary, vocabulary)))
        << memory.name << " behind " << at;
  }
  EXPECT_EQ(session.tokens(), text);
  Session alone(model, memory.options);
  for (const TokenId token : text) alone.read({&token, 1});
  EXPECT_EQ(session.rows(), alone.rows());
  EXPECT_EQ(session.attention_size(), alone.attention_size());
  const auto more = random_tokens(40, vocabulary, seed + 1);
  EXPECT_TRUE(same_bits(all_logits(session, more), all_logits(alone, more))) << memory.name;
}

TEST(Draft, WhatIsReadOnTrialHasTheBitsOfReadingItAlone_InMemoriesOfEveryKind) {
  for (const auto& bytes : models()) {
    const testing::TemporaryFile file("sample.gguf", bytes);
    const Model model(file.path());
    for (const Memory& memory : memories())
      for (const std::uint64_t seed : {1u, 2u}) expect_bits_of_reading_alone(model, memory, seed);
  }
}

TEST(Draft, ConvolutionsCarryWhatTheKeptTokensLeft) {
  const Model model(KVTIDE_GOLDENS "/folders/zaya-f16");
  for (const std::int64_t slack : {4, 8}) {
    Memory memory{"zaya", {}};
    memory.options.context = 400;
    memory.options.slack = slack;
    expect_bits_of_reading_alone(model, memory, 3);
  }
}

TEST(Draft, AskedAboutIsWhatOnePassTakes_AndTheFirstTokenIsReadWhateverFollows) {
  const testing::TemporaryFile file("sample.gguf", models()[0]);
  const Model model(file.path());
  SessionOptions options = memories()[0].options;
  options.context = 20;
  Session session(model, options);
  const auto text = random_tokens(30, model.vocabulary(), 5);
  const auto yes = [](std::span<const float>) { return true; };
  EXPECT_EQ(session.read_while(text, yes), 16);
  EXPECT_EQ(session.read_while(std::span(text).subspan(16), yes), 4);  // the context ends
  expect_refused(ErrorCode::context_full, "the context is full",
                 [&] { session.read_while(std::span(text).subspan(20), yes); });
  session.apply(Truncate{10});
  expect_refused(ErrorCode::invalid_argument, "no token to read", [&] { session.read_while({}, yes); });
  const std::vector<TokenId> outside = {1, 2, 1'000'000};
  expect_refused(ErrorCode::invalid_argument, "1000000", [&] { session.read_while(outside, yes); });
  EXPECT_EQ(session.position(), 10);
  struct Stop {};
  EXPECT_THROW(
      session.read_while(std::span(text).first(4), [](std::span<const float>) -> bool { throw Stop{}; }),
      Stop);
  EXPECT_EQ(session.position(), 10);
  EXPECT_EQ(session.read_while(std::span(text).first(4), [](std::span<const float>) { return false; }), 1);
  EXPECT_EQ(session.position(), 11);
}

// A text that repeats itself, so that guesses come true and fail.
std::vector<TokenId> repeating(std::int64_t vocabulary) {
  const auto part = random_tokens(30, vocabulary, 8);
  std::vector<TokenId> text;
  for (int i = 0; i < 4; ++i) text.insert(text.end(), part.begin(), part.end());
  return text;
}

TEST(Draft, AnswersAreTheSame_GreedyAndSampled_AndSoIsWhatTheSessionHolds) {
  std::int64_t accepted = 0, rejected = 0;
  for (const auto& bytes : models()) {
    const testing::TemporaryFile file("sample.gguf", bytes);
    const Model model(file.path());
    const auto prompt = repeating(model.vocabulary());
    for (const Memory& memory : memories())
      for (const float temperature : {0.0f, 0.3f, 1.5f})
        for (const std::int64_t length : {1, 2, 100}) {
          GenerateOptions options;
          options.max_tokens = length;
          options.sampler.temperature = temperature;
          options.sampler.repeat_penalty = temperature > 1.0f ? 1.2f : 1.0f;
          options.sampler.seed = 11;
          Session plain(model, memory.options), drafting(model, memory.options);
          plain.read(prompt);
          drafting.read(prompt);
          const Generated wanted = generate(plain, options);
          options.draft = Draft::ngram;
          const Generated got = generate(drafting, options);
          EXPECT_EQ(got.tokens, wanted.tokens) << memory.name << " " << temperature;
          EXPECT_EQ(got.text, wanted.text);
          EXPECT_EQ(got.reason, wanted.reason);
          EXPECT_EQ(drafting.tokens(), plain.tokens());
          EXPECT_TRUE(same_bits(drafting.logits(), plain.logits())) << memory.name << " " << temperature;
          EXPECT_EQ(wanted.drafted, 0);
          accepted += got.accepted;
          rejected += got.drafted - got.accepted;
        }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(rejected, 100);
}

TEST(Draft, StopsWhereItWouldStopWithout) {
  const testing::TemporaryFile file("sample.gguf", models()[0]);
  const Model model(file.path());
  const auto prompt = repeating(model.vocabulary());
  const auto run = [&](Draft draft, const std::string& stop, int pieces) {
    Session session(model, memories()[0].options);
    session.read(prompt);
    GenerateOptions options;
    options.max_tokens = 80;
    options.draft = draft;
    if (!stop.empty()) options.stop = {stop};
    options.on_text = [&](std::string_view) { return pieces == 0 || --pieces > 0; };
    Generated out = generate(session, options);
    return std::make_pair(std::move(out), session.tokens());
  };
  const std::string text = run(Draft::none, "", 0).first.text;
  for (std::size_t at = 3; at + 3 < text.size(); at += 7) {
    const auto wanted = run(Draft::none, text.substr(at, 3), 0),
               got = run(Draft::ngram, text.substr(at, 3), 0);
    EXPECT_EQ(got.first.tokens, wanted.first.tokens) << at;
    EXPECT_EQ(got.first.reason, StopReason::stop_string);
    EXPECT_EQ(got.second, wanted.second) << at;
  }
  for (int pieces = 1; pieces < 60; pieces += 5) {
    const auto wanted = run(Draft::none, "", pieces), got = run(Draft::ngram, "", pieces);
    EXPECT_EQ(got.first.tokens, wanted.first.tokens) << pieces;
    EXPECT_EQ(got.first.reason, wanted.first.reason);
    EXPECT_EQ(got.second, wanted.second) << pieces;
  }
}

TEST(DraftLength, GrowsWhereGuessesComeTrue_AndLeavesOtherTextsAlone) {
  DraftLength length;
  EXPECT_EQ(length.next(), 3);
  length.learn(3, 3);
  EXPECT_EQ(length.next(), 6);
  length.learn(6, 6);
  length.learn(12, 12);
  EXPECT_EQ(length.next(), 15);
  length.learn(15, 4);
  EXPECT_EQ(length.next(), 5);
  int passes = 0, guesses = 0;
  for (; passes < 10'000; ++passes)
    if (const std::int64_t next = length.next(); next > 0) {
      ++guesses;
      length.learn(next, 0);
    }
  EXPECT_LT(guesses, 170);  // one in 64, after a few
  length.learn(0, 0);       // nothing was guessed: nothing is learnt
}

}  // namespace
}  // namespace kvtide
