// stateful_test.cpp: GPT-2 driven as an exported model is: the prompt once, then one token a call, with
// keyCache, valueCache and pastLen; and positions that do not exist are refused.
#include "kvtide/stateful.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kvtide/error.h"
#include "tests/engine/logits.h"
#include "tests/engine/npy.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

const std::string kShort = KVTIDE_GOLDENS "/folders/gpt2-f32";
const std::string kLong = KVTIDE_GOLDENS "/folders/gpt2-long-f16";

SessionOptions exact_options() {
  SessionOptions options;
  options.exact = true;
  options.key_type = options.value_type = ElementType::f32;
  options.threads = 1;
  return options;
}

std::vector<std::int32_t> ones(std::int64_t count) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(count), 1);
}

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

std::int32_t past_len(const StatefulModel& model) {
  const auto bytes = model.state().read("pastLen");
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::vector<TokenId> golden_ids() {
  return testing::read_npy<TokenId>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
}

TEST(Stateful, ThePromptOnceAndThenOneTokenACall_GiveTheReferenceLogits) {
  const Model model(kShort);
  StatefulModel stateful(model, exact_options());
  const auto ids = golden_ids();
  const auto wanted = testing::read_npy<float>(kShort + "/logits.npy", "<f4");
  const std::size_t vocabulary = 64, prompt = 11;
  for (std::size_t read = prompt; read <= ids.size(); ++read) {
    const std::size_t first = read == prompt ? 0 : read - 1;
    const auto got =
        stateful.predict(std::span(ids).subspan(first, read - first), ones(static_cast<std::int64_t>(read)));
    ASSERT_EQ(got.size(), vocabulary);
    for (std::size_t i = 0; i < vocabulary; ++i)
      ASSERT_NEAR(got[i], wanted[(read - 1) * vocabulary + i], 2e-4) << "after " << read << " tokens";
    ASSERT_EQ(stateful.past_length(), static_cast<std::int64_t>(read));
  }
}

TEST(Stateful, TheStateIsKeyCacheValueCacheAndPastLen) {
  const Model model(kShort);
  StatefulModel stateful(model, exact_options());
  const auto ids = golden_ids();
  stateful.predict(std::span(ids).first(5), ones(5));
  const NamedState state = stateful.state();
  const StateSpec spec = state.spec();
  ASSERT_EQ(spec.tensors.size(), 3u);
  EXPECT_EQ(spec.tensors[0].name, "keyCache");
  EXPECT_EQ(spec.tensors[0].shape, (std::vector<std::int64_t>{2, 1, 4, 256, 8}));
  EXPECT_EQ(spec.tensors[1].name, "valueCache");
  EXPECT_EQ(spec.tensors[1].shape, spec.tensors[0].shape);
  EXPECT_EQ(spec.tensors[2].name, "pastLen");
  EXPECT_EQ(past_len(stateful), 5);
  const auto keys = state.read("keyCache");
  std::vector<float> rows(keys.size() / sizeof(float));
  std::memcpy(rows.data(), keys.data(), keys.size());
  // Rows of the five tokens hold numbers, all others zeros.
  for (std::size_t head = 0; head < 8; ++head)
    for (std::size_t row = 0; row < 256; ++row) {
      const float* at = rows.data() + (head * 256 + row) * 8;
      const bool zero = std::all_of(at, at + 8, [](float v) { return v == 0.0f; });
      ASSERT_EQ(zero, row >= 5) << "layer and head " << head << ", row " << row;
    }
}

TEST(Stateful, AMaskOfAnotherLengthIsRefusedWithTheReason_AndChangesNothing) {
  const Model model(kShort);
  StatefulModel stateful(model, exact_options());
  const auto ids = golden_ids();
  const auto wanted = copy(stateful.predict(std::span(ids).first(5), ones(5)));
  const auto next = std::span(ids).subspan(5, 1);
  testing::expect_refused(
      ErrorCode::invalid_argument,
      "the attention mask has length 1, but 6 tokens are active: 5 in the state and 1 in this call",
      [&] { stateful.predict(next, ones(1)); });
  testing::expect_refused(ErrorCode::invalid_argument, "would hide the state",
                          [&] { stateful.predict(next, ones(1)); });
  testing::expect_refused(ErrorCode::invalid_argument, "has length 5, but 6",
                          [&] { stateful.predict(next, ones(5)); });
  testing::expect_refused(ErrorCode::invalid_argument, "has length 7, but 6",
                          [&] { stateful.predict(next, ones(7)); });
  auto padded = ones(6);
  padded[2] = 0;
  testing::expect_refused(ErrorCode::invalid_argument, "the attention mask is 0 at position 2",
                          [&] { stateful.predict(next, padded); });
  testing::expect_refused(ErrorCode::invalid_argument, "at least one token",
                          [&] { stateful.predict({}, ones(5)); });
  EXPECT_EQ(stateful.past_length(), 5);
  EXPECT_EQ(copy(stateful.session().logits()), wanted);
}

TEST(Stateful, AStateCarriedAwayAndBackGoesOnWithTheSameBits) {
  const Model model(kShort);
  const auto ids = golden_ids();
  StatefulModel one(model, exact_options()), other(model, exact_options());
  one.predict(std::span(ids).first(20), ones(20));
  other.set_state(one.state(), std::span(ids).first(20));
  EXPECT_EQ(other.past_length(), 20);
  const auto next = std::span(ids).subspan(20, 1);
  EXPECT_EQ(copy(other.predict(next, ones(21))), copy(one.predict(next, ones(21))));
  testing::expect_refused(ErrorCode::invalid_argument, "has read 21 tokens, but 3 are given",
                          [&] { other.set_state(one.state(), std::span(ids).first(3)); });
  one.reset();
  EXPECT_EQ(past_len(one), 0);
}

TEST(Stateful, TheStateOfAnotherModelOfTheSameShapeIsRefused) {
  const testing::TemporaryFile first = testing::sample_file({.seed = 1}),
                               second = testing::sample_file({.seed = 2});
  const Model one(first.path()), two(second.path());
  const std::vector<TokenId> ids = {1, 2, 3};
  StatefulModel mine(one, exact_options()), theirs(two, exact_options()), again(one, exact_options());
  mine.predict(ids, ones(3));
  const NamedState state = mine.state();
  EXPECT_EQ(state.spec().model, one.identity().at("model"));
  testing::expect_refused(ErrorCode::invalid_argument, "the state belongs to another model, whose files have",
                          [&] { theirs.set_state(state.fork(), ids); });
  EXPECT_EQ(theirs.past_length(), 0);
  again.set_state(state, ids);
  EXPECT_EQ(again.past_length(), 3);
  StateSpec unsaid = state.spec();  // arrays from elsewhere say no model
  unsaid.model.clear();
  NamedState arrays = make_state(unsaid);
  arrays.append(3, {});
  theirs.set_state(arrays, ids);
  EXPECT_EQ(theirs.past_length(), 3);
}

TEST(Stateful, PositionsBeyondThoseThatWereLearnedAreRefused_NeverShifted) {
  const Model model(kShort);
  StatefulModel stateful(model, exact_options());
  const auto ids = testing::random_tokens(257, 64, 5);
  stateful.predict(std::span(ids).first(256), ones(256));
  const auto before = copy(stateful.session().logits());
  testing::expect_refused(ErrorCode::context_full,
                          "the model has learned 256 positions: 256 are taken and 1 more",
                          [&] { stateful.predict(std::span(ids).subspan(256, 1), ones(257)); });
  EXPECT_EQ(stateful.past_length(), 256);
  EXPECT_EQ(copy(stateful.session().logits()), before);

  SessionOptions longer = exact_options();
  longer.context = 257;
  testing::expect_refused(ErrorCode::invalid_argument, "has learned 256 positions",
                          [&] { Session(model, longer); });
  SessionOptions rolling = exact_options();
  rolling.rolling = Rolling{4, 64};
  testing::expect_refused(ErrorCode::invalid_argument, "absolute positions cannot follow",
                          [&] { Session(model, rolling); });
  SessionOptions shorter = exact_options();
  shorter.context = 100;
  Session session(model, shorter);
  testing::expect_refused(ErrorCode::invalid_argument, "cannot expand to 257 rows: the model has learned 256",
                          [&] { session.apply(Expand{257}); });
  EXPECT_EQ(session.apply(Expand{256}).capacity_after, 256);
  session.read(std::span(ids).first(50));
  testing::expect_refused(ErrorCode::invalid_argument, "positions are absolute", [&] {
    session.apply(Drop{{10, 20}, true});
  });
}

// A half float counts to 2,048; pastLen is a whole number.
TEST(Stateful, PastLenStaysExactBeyond2048) {
  const Model model(kLong);
  ASSERT_EQ(model.context_length(), 2304);
  StatefulModel stateful(model, exact_options());
  const auto ids = testing::random_tokens(2304, 64, 6);
  stateful.predict(std::span(ids).first(2047), ones(2047));
  for (std::int64_t read = 2048; read <= 2060; ++read) {
    stateful.predict(std::span(ids).subspan(static_cast<std::size_t>(read - 1), 1), ones(read));
    ASSERT_EQ(past_len(stateful), read);
  }
  // What a stuck position would change: the same text in one call.
  Session whole(model, exact_options());
  whole.read(std::span(ids).first(2060));
  EXPECT_EQ(copy(stateful.session().logits()), copy(whole.logits()));
  stateful.predict(std::span(ids).subspan(2060), ones(2304));
  EXPECT_EQ(past_len(stateful), 2304);
}

TEST(Stateful, AMemoryThatForgetsIsRefused) {
  const Model model(KVTIDE_GOLDENS "/folders/llama-f32"), windows(KVTIDE_GOLDENS "/folders/gemma3-f32");
  SessionOptions rolling = exact_options();
  rolling.rolling = Rolling{4, 64};
  testing::expect_refused(ErrorCode::invalid_argument, "keeps every token",
                          [&] { StatefulModel(model, rolling); });
  testing::expect_refused(ErrorCode::invalid_argument, "sliding windows",
                          [&] { StatefulModel(windows, exact_options()); });
}

}  // namespace
}  // namespace kvtide
