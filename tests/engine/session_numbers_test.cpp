// What a session does when numbers stop being numbers, and the hash that compares runs.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "kernels/kernels.h"
#include "kvtide/session.h"
#include "tests/kernels/samples.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::expect_refused;

// Token 0 is embedded as zeros and stays zero through every layer; any other token overflows in the
// feed-forward.

testing::Bytes overflowing_bytes() {
  testing::SampleModel sample{.layers = 2, .own_head = false};
  sample.types = {DType::q8_0};
  std::vector<float> embedding(64 * 64, 0.0f), huge(64 * 128);
  for (std::size_t i = 64; i < embedding.size(); ++i) embedding[i] = (i * 29 % 17) < 8 ? 1.0f : -1.0f;
  for (std::size_t i = 0; i < huge.size(); ++i) huge[i] = 3e38f;
  return testing::sample_model(sample)
      .set_floats("token_embd.weight", {64, 64}, embedding)
      .set_floats("blk.0.ffn_down.weight", {128, 64}, huge)
      .build()
      .bytes;
}

TEST(SessionNumbers, ThatAreNoLongerFinite_EndTheSessionUntilItIsCleared) {
  const testing::TemporaryFile file("overflow.gguf", overflowing_bytes());
  const Model model(file.path());
  const std::vector<TokenId> fine(40, 0);
  for (const bool exact : {false, true})
    for (const Kernels* kernels : available_kernels()) {
      SessionOptions options;
      options.exact = exact;
      options.context = 100;
      options.prefill_chunk = 16;
      options.kernels = kernels->isa;
      Session session(model, options);
      Session neighbour(model, options);
      session.read(fine);
      neighbour.read(fine);
      std::vector<TokenId> broken(40, 0);
      broken[20] = 5;  // in the second of three chunks
      expect_refused(ErrorCode::numeric, "are not finite", [&] { session.read(broken); });
      EXPECT_EQ(session.position(), 40 + 16) << "the chunks before it";
      expect_refused(ErrorCode::numeric, "clear it first", [&] { session.read(fine); });
      expect_refused(ErrorCode::numeric, "clear it first", [&] { session.read({}); });
      EXPECT_EQ(session.position(), 40 + 16);
      neighbour.read(fine);
      EXPECT_EQ(neighbour.position(), 80);
      session.clear();
      session.read(fine);
      EXPECT_EQ(session.position(), 40);
      for (const float logit : session.logits()) EXPECT_EQ(logit, 0.0f) << exact << kernels->isa;
    }
}

TEST(SessionNumbers, ThatAreNoLongerFinite_AreNeverHandedOutAsLogits) {
  const testing::TemporaryFile file("overflow.gguf", overflowing_bytes());
  const Model model(file.path());
  for (const bool exact : {false, true}) {
    SessionOptions options;
    options.exact = exact;
    options.context = 100;
    Session session(model, options);
    std::vector<TokenId> broken(40, 0);
    broken[20] = 5;
    ReadOptions read;
    read.logits_from = 0;
    read.on_logits = [](Pos pos, std::span<const float> row) {
      for (const float logit : row) EXPECT_TRUE(std::isfinite(logit)) << pos;
    };
    EXPECT_THROW(session.read(broken, read), Error);
    EXPECT_EQ(session.position(), 0);
  }
}

TEST(HashLogits, ChangesWithEveryBitAndEveryPlace) {
  std::vector<float> values = testing::normals(67, 1);
  const std::uint64_t hash = hash_logits(values);
  EXPECT_EQ(hash_logits(values), hash);
  std::set<std::uint64_t> seen = {hash};
  for (float& value : values)
    for (int bit = 0; bit < 32; ++bit) {
      const float before = value;
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(before) ^ (1u << bit));
      EXPECT_TRUE(seen.insert(hash_logits(values)).second) << "bit " << bit;
      value = before;
    }
  std::swap(values[3], values[7]);  // the same chain, if the values were dealt out in turn
  EXPECT_TRUE(seen.insert(hash_logits(values)).second);
  std::swap(values[3], values[7]);
  values.push_back(0.0f);
  EXPECT_TRUE(seen.insert(hash_logits(values)).second);
  EXPECT_NE(hash_logits({}, 1), hash_logits({}, 2));
  EXPECT_NE(hash_logits(values, 1), hash_logits(values, 2));
}

}  // namespace
}  // namespace kvtide
