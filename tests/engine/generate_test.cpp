#include "kvtide/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/engine/chain_model.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

using testing::ChainModel;

// Token ids of the vocabulary below.
enum : TokenId { kBos, kEos, kA, kB, kC, kD, kE, kF, kThe, kC3, kA9, kFF };
const std::vector<std::string> kTokens = {"<s>", "</s>", "a",      "b",      "c",     "d", "e",
                                          "f",   "the",  "\u00c3", "\u00a9", "\u00ff"};  // bytes c3, a9, ff

struct Answer {
  Generated generated;
  std::vector<std::string> pieces;
  Pos position = 0;
  int choices = 0;
};

// Reads `prompt` and generates; the pieces handed to on_text must make up the text.
Answer answer(const ChainModel& chain, const std::vector<TokenId>& prompt, GenerateOptions options,
              std::int64_t context = 100) {
  const testing::TemporaryFile file("chain.gguf", chain.bytes());
  const Model model(file.path());
  SessionOptions session_options;
  session_options.context = context;
  session_options.threads = 1;
  Session session(model, session_options);
  session.read(prompt);
  Answer out;
  const auto caller = options.on_text;
  options.on_text = [&](std::string_view text) {
    EXPECT_FALSE(text.empty());
    out.pieces.emplace_back(text);
    return !caller || caller(text);
  };
  options.on_logits = [&](std::span<const float> logits) {
    EXPECT_EQ(logits.size(), 64u);
    ++out.choices;
  };
  out.generated = generate(session, options);
  out.position = session.position();
  std::string together;
  for (const auto& piece : out.pieces) together += piece;
  EXPECT_EQ(together, out.generated.text);
  return out;
}

// a b c d e f, then the end of the text.
ChainModel alphabet() { return ChainModel(kTokens).chain({kA, kB, kC, kD, kE, kF, kEos}); }

TEST(Generate, GoesOnUntilTheEndOfTheText_WhichIsNotPartOfIt) {
  const Answer got = answer(alphabet(), {kBos, kA}, {});
  EXPECT_EQ(got.generated.tokens, (std::vector<TokenId>{kB, kC, kD, kE, kF}));
  EXPECT_EQ(got.generated.text, "bcdef");
  EXPECT_EQ(got.generated.reason, StopReason::end_of_text);
  EXPECT_EQ(got.position, 2 + 5) << "every token of the answer was read, the end token was not";
  EXPECT_EQ(got.choices, 6);
}

TEST(Generate, StopsAfterSoManyTokens) {
  for (const std::int64_t most : {0, 1, 3}) {
    GenerateOptions options;
    options.max_tokens = most;
    const Answer got = answer(alphabet(), {kA}, options);
    EXPECT_EQ(got.generated.text, std::string("bcdef").substr(0, static_cast<std::size_t>(most)));
    EXPECT_EQ(static_cast<std::int64_t>(got.generated.tokens.size()), most);
    EXPECT_EQ(got.generated.reason, StopReason::max_tokens);
    EXPECT_EQ(got.position, 1 + most);
    EXPECT_EQ(got.choices, most);
  }
}

TEST(Generate, EndsAtTheStopTokensOfItsCaller) {
  GenerateOptions options;
  options.stop_tokens = {kE, kD};
  const Answer got = answer(alphabet(), {kA}, options);
  EXPECT_EQ(got.generated.text, "bc");
  EXPECT_EQ(got.generated.tokens, (std::vector<TokenId>{kB, kC}));
  EXPECT_EQ(got.generated.reason, StopReason::end_of_text);
}

TEST(Generate, StopsAtAStringThatIsSplitOverTokens_AndNeverShowsItsBeginning) {
  GenerateOptions options;
  options.stop = {"def"};
  const Answer got = answer(alphabet(), {kA}, options);
  EXPECT_EQ(got.generated.text, "bc");
  EXPECT_EQ(got.generated.reason, StopReason::stop_string);
  EXPECT_EQ(got.pieces, (std::vector<std::string>{"b", "c"}));
}

TEST(Generate, ShowsTheBeginningOfAStopStringThatWasNotCompleted) {
  GenerateOptions options;
  options.stop = {"cdx", "ef!"};
  const Answer got = answer(alphabet(), {kA}, options);
  EXPECT_EQ(got.generated.text, "bcdef");
  EXPECT_EQ(got.generated.reason, StopReason::end_of_text);
}

TEST(Generate, StopsAtTheEarliestOfSeveralStrings) {
  GenerateOptions options;
  options.stop = {"f", "de", "bcdef", "", "d"};  // an empty one stops nothing
  const Answer got = answer(alphabet(), {kA}, options);
  EXPECT_EQ(got.generated.reason, StopReason::stop_string);
  EXPECT_EQ(got.generated.text, "bc");
}

TEST(Generate, FindsAStopStringThatBeginsInsideAFailedOne) {
  // The text is "bcthee": "cthex" holds back "cthe" and fails, and "thee" began inside it.
  const ChainModel chain = ChainModel(kTokens).chain({kA, kB, kC, kThe}).chain({kThe, kE, kEos});
  GenerateOptions options;
  options.stop = {"thee", "cthex"};
  const Answer got = answer(chain, {kA}, options);
  EXPECT_EQ(got.generated.text, "bc");
  EXPECT_EQ(got.generated.reason, StopReason::stop_string);
}

TEST(Generate, DropsWhatFollowsAStopStringInTheSameToken) {
  const ChainModel chain = ChainModel(kTokens).chain({kA, kB, kThe, kEos});
  GenerateOptions options;
  options.stop = {"h"};
  const Answer got = answer(chain, {kA}, options);
  EXPECT_EQ(got.generated.text, "bt");
  EXPECT_EQ(got.generated.reason, StopReason::stop_string);
}

TEST(Generate, ShowsWholeCharactersOnly) {
  const ChainModel chain = ChainModel(kTokens).chain({kA, kC3, kA9, kB, kEos});
  const Answer got = answer(chain, {kA}, {});
  EXPECT_EQ(got.pieces, (std::vector<std::string>{"\u00e9", "b"}));
}

TEST(Generate, ShowsBytesThatAreNoTextAsReplacementCharacters) {
  const Answer invalid = answer(ChainModel(kTokens).chain({kA, kFF, kB, kEos}), {kA}, {});
  EXPECT_EQ(invalid.generated.text, "\ufffdb");
  const Answer unfinished = answer(ChainModel(kTokens).chain({kA, kB, kC3, kEos}), {kA}, {});
  EXPECT_EQ(unfinished.generated.text, "b\ufffd");
  EXPECT_EQ(unfinished.generated.tokens, (std::vector<TokenId>{kB, kC3}));
}

TEST(Generate, StopsWhenItsCallerHasSeenEnough) {
  GenerateOptions options;
  options.on_text = [](std::string_view text) { return text != "d"; };
  const Answer got = answer(alphabet(), {kA}, options);
  EXPECT_EQ(got.generated.text, "bcd");
  EXPECT_EQ(got.generated.reason, StopReason::cancelled);
}

TEST(Generate, StopsWhenTheContextIsFull) {
  const Answer got = answer(alphabet(), {kBos, kA}, {}, 4);
  EXPECT_EQ(got.position, 4);
  EXPECT_EQ(got.generated.reason, StopReason::context_full);
  EXPECT_EQ(got.generated.text, "bcd") << "the last token needs no room: nothing is asked after it";
}

TEST(Generate, PenalisesTheHistoryItIsGiven) {
  ChainModel chain = alphabet();
  chain.score(kA, kF, 1.9f);
  GenerateOptions options;
  options.max_tokens = 1;
  options.sampler.repeat_penalty = 1.5f;
  EXPECT_EQ(answer(chain, {kA}, options).generated.text, "b");
  options.history = {kB};
  EXPECT_EQ(answer(chain, {kA}, options).generated.text, "f");
}

TEST(Generate, DrawsTheSameAnswerFromTheSameSeed) {
  ChainModel chain(kTokens);
  for (std::size_t t = kA; t <= kF; ++t)
    for (std::size_t n = kA; n <= kF; ++n) chain.score(t, n, 1.0f);
  GenerateOptions options;
  options.max_tokens = 60;
  options.sampler.temperature = 1.0f;
  options.sampler.seed = 11;
  const Answer first = answer(chain, {kA}, options), second = answer(chain, {kA}, options);
  EXPECT_EQ(first.generated.tokens, second.generated.tokens);
  options.sampler.seed = 12;
  EXPECT_NE(answer(chain, {kA}, options).generated.tokens, first.generated.tokens);
}

TEST(Generate, RefusesASessionWithoutLogits) {
  const testing::TemporaryFile file("chain.gguf", alphabet().bytes());
  const Model model(file.path());
  Session session(model, {});
  EXPECT_THROW(generate(session, {}), Error);
  EXPECT_EQ(session.position(), 0);
}

TEST(StopReason, HasAStableName) {
  const std::map<StopReason, std::string> names = {{StopReason::end_of_text, "end_of_text"},
                                                   {StopReason::max_tokens, "max_tokens"},
                                                   {StopReason::stop_string, "stop_string"},
                                                   {StopReason::context_full, "context_full"},
                                                   {StopReason::cancelled, "cancelled"}};
  for (const auto& [reason, name] : names) EXPECT_EQ(stop_reason_name(reason), name);
}

// The logits of the chain model itself, so that the tests above stand on something.
TEST(ChainModel, GivesTheLogitsOfItsTable) {
  ChainModel chain(kTokens);
  chain.score(kA, kB, 0.25f).score(kA, kC, -1.5f);
  const testing::TemporaryFile file("chain.gguf", chain.bytes());
  const Model model(file.path());
  Session session(model, {});
  session.read(std::vector<TokenId>{kF, kA});
  EXPECT_NEAR(session.logits()[kB], 2.0f, 0.01f);
  EXPECT_NEAR(session.logits()[kC], -12.0f, 0.01f);
  EXPECT_NEAR(session.logits()[kA], 8.0f, 0.01f);
  EXPECT_NEAR(session.logits()[kF], 0.0f, 0.01f);
}

}  // namespace
}  // namespace kvtide
