// Random answers of two letters and random stop strings: the streamed answer is the one that looking at every
// prefix of the whole answer gives.
#include <gtest/gtest.h>

#include "kvtide/generate.h"
#include "tests/engine/chain_model.h"

namespace kvtide {
namespace {

using testing::Rng;

// Where the answer ends: at the first character that completes a stop string, before the longest of those it
// completes.
std::string cut_at_stops(const std::string& answer, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= answer.size(); ++end) {
    std::size_t begin = std::string::npos;
    for (const auto& stop : stops)
      if (answer.substr(0, end).ends_with(stop)) begin = std::min(begin, end - stop.size());
    if (begin != std::string::npos) return answer.substr(0, begin);
  }
  return answer;
}

TEST(StopStrings, CutTheAnswerWhereTheFirstOfThemIsComplete) {
  testing::ChainModel chain({"<s>", "</s>", "a", "b"});
  for (const std::size_t t : {2u, 3u}) chain.score(t, 2, 2.0f).score(t, 3, 2.0f);
  const testing::TemporaryFile file("chain.gguf", chain.bytes());
  const Model model(file.path());
  int stopped = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    GenerateOptions options;
    options.max_tokens = 30;
    options.sampler = {.temperature = 1.0f, .top_k = 2, .top_p = 1.0f, .min_p = 0.0f, .seed = seed};
    Session session(model, {});
    const std::vector<TokenId> prompt = {2};
    session.read(prompt);
    const std::string whole = generate(session, options).text;
    ASSERT_EQ(whole.size(), 30u);

    const std::int64_t count = 1 + rng.below(3);
    for (std::int64_t i = 0; i < count; ++i) {
      std::string stop;
      const std::int64_t length = 2 + rng.below(6);
      for (std::int64_t c = 0; c < length; ++c) stop += rng.below(2) == 0 ? 'a' : 'b';
      options.stop.push_back(stop);
    }
    const std::string wanted = cut_at_stops(whole, options.stop);
    std::string shown;
    options.on_text = [&](std::string_view text) {
      shown += text;
      EXPECT_TRUE(wanted.starts_with(shown)) << "showed " << shown << " of " << wanted;
      return true;
    };
    session.clear();
    session.read(prompt);
    const Generated got = generate(session, options);
    ASSERT_EQ(got.text, wanted) << "seed " << seed << " of " << whole;
    ASSERT_EQ(shown, wanted);
    ASSERT_EQ(got.reason == StopReason::stop_string, wanted != whole) << "seed " << seed;
    stopped += got.reason == StopReason::stop_string;
  }
  EXPECT_GT(stopped, 100);
  EXPECT_LT(stopped, 300);
}

}  // namespace
}  // namespace kvtide
