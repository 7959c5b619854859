// Random walks of a session: reads of any length, cancelled reads, refused reads, clearing. Whatever happened
// before, the logits after a text are those of the text read in one go.
#include <gtest/gtest.h>

#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::Rng;

testing::SampleModel random_model(Rng& rng) {
  constexpr const char* kArchitectures[] = {"llama", "gemma3", "qwen2", "qwen3"};
  testing::SampleModel sample;
  sample.architecture = kArchitectures[rng.below(4)];
  if (sample.architecture == "gemma3" || rng.below(2) == 0)
    sample.window = static_cast<std::uint32_t>(1 + rng.below(90));
  if (sample.architecture.starts_with("qwen")) sample.window.reset();
  sample.layers = static_cast<std::uint32_t>(1 + rng.below(3));
  sample.kv_heads = 1u << rng.below(3);
  sample.head_dim = static_cast<std::uint32_t>(8 * (1 + rng.below(4)));
  sample.types = {DType::q8_0, DType::q4_1, DType::f16};
  sample.own_head = rng.below(2) == 0;
  sample.seed = rng.bits();
  return sample;
}

class SessionWalk {
 public:
  explicit SessionWalk(std::uint64_t seed)
      : rng_(seed),
        seed_(seed),
        file_("sample.gguf", testing::sample_model(random_model(rng_)).build().bytes),
        model_(file_.path()) {}

  void run() {
    SessionOptions options;
    options.exact = rng_.below(2) == 0;
    options.key_type = rng_.below(2) == 0 ? ElementType::f16 : ElementType::f32;
    options.value_type = rng_.below(2) == 0 ? ElementType::f16 : ElementType::f32;
    options.context = 50 + rng_.below(200);
    options.threads = static_cast<int>(1 + rng_.below(4));
    options.prefill_chunk = 1 + rng_.below(70);
    Session session(model_, options);
    for (int text = 0; text < 3; ++text) {
      const auto tokens = testing::random_tokens(static_cast<std::size_t>(options.context), 64, rng_.bits());
      SessionOptions whole = options;
      whole.prefill_chunk = options.context;
      const auto wanted = testing::all_logits(model_, whole, tokens);
      session.clear();
      for (int turn = 0; turn < 12; ++turn) step(session, tokens, wanted);
    }
  }

 private:
  void step(Session& session, const std::vector<TokenId>& tokens, const std::vector<float>& wanted) {
    const auto at = static_cast<std::size_t>(session.position());
    const auto left = static_cast<std::int64_t>(tokens.size() - at);
    if (left == 0) return session.clear();
    const auto n = static_cast<std::size_t>(std::min(left, 1 + rng_.below(40)));
    const auto part = std::span(tokens).subspan(at, n);
    const std::int64_t kind = rng_.below(8);
    if (kind == 0) {  // more than fits
      EXPECT_THROW(session.read(std::vector<TokenId>(static_cast<std::size_t>(left) + 1, 3)), Error);
      ASSERT_EQ(session.position(), static_cast<Pos>(at));
      return;
    }
    if (kind == 1) {  // a token that does not exist
      std::vector<TokenId> bad(part.begin(), part.end());
      bad.back() = 64;
      EXPECT_THROW(session.read(bad), Error);
      ASSERT_EQ(session.position(), static_cast<Pos>(at));
      return;
    }
    if (kind == 2) {  // stopped after a chunk
      ReadOptions read;
      read.progress = [](std::int64_t) { return false; };
      EXPECT_THROW(session.read(part, read), Error);
      return;
    }
    session.read(part);
    ASSERT_EQ(session.position(), static_cast<Pos>(at + n));
    ASSERT_TRUE(testing::same_bits(session.logits(), std::span(wanted).subspan((at + n - 1) * 64, 64)))
        << "seed " << seed_ << " after " << at + n << " tokens";
  }

  Rng rng_;
  std::uint64_t seed_;
  testing::TemporaryFile file_;
  Model model_;
};

TEST(SessionWalk, EndsInTheLogitsOfItsText_WhateverHappenedOnTheWay) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SessionWalk(seed).run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace kvtide
