// An attention size that adapts itself, through sessions: the same bits whatever the chunks, threads,
// kernels, forks and snapshots.
#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::same_bits;

constexpr std::int64_t kVocabulary = 64;

class AutoAttentionTest : public ::testing::Test {
 protected:
  static testing::SampleModel sample() {
    testing::SampleModel out;
    out.types = {DType::q8_0, DType::q4_1};
    out.gain = 2.0f;
    return out;
  }
  static SessionOptions adapting() {
    SessionOptions options;
    options.threads = 1;
    options.context = 2000;
    options.auto_attention = AutoAttention{64, 512};
    return options;
  }
  std::span<const float> rows(const std::vector<float>& logits, Pos from) const {
    return std::span(logits).subspan(static_cast<std::size_t>(from * kVocabulary));
  }

  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model(sample()).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = testing::random_tokens(1100, kVocabulary, 5);
  Session reference_{model_, adapting()};
  const std::vector<float> wanted_ = all_logits(reference_, text_);
  const std::vector<AttentionChange> changes_ = reference_.attention_changes();
};

TEST_F(AutoAttentionTest, ChangesAtMultiplesOf256AndReportsEachChange) {
  ASSERT_GE(changes_.size(), 2u) << "a made-up model looks everywhere";
  std::int64_t size = 64;
  for (const AttentionChange& change : changes_) {
    EXPECT_EQ(change.position % 256, 0);
    EXPECT_EQ(change.before, size);
    EXPECT_TRUE(change.size == 2 * size || change.size == size / 2);
    EXPECT_TRUE(change.size > size ? change.far_share > 0.15 : change.far_share < 0.08) << change.far_share;
    size = change.size;
  }
  EXPECT_EQ(reference_.attention_size(), size);
}

TEST_F(AutoAttentionTest, IsASessionWhoseSizeIsSetByHandAtThosePositions) {
  SessionOptions options = adapting();
  options.auto_attention.reset();
  options.attention_size = 64;
  options.prefill_chunk = 100;
  Session session(model_, options);
  std::vector<float> got;
  const auto read_to = [&](Pos end) {
    const auto first = static_cast<std::size_t>(session.position());
    const auto part =
        all_logits(session, std::span(text_).subspan(first, static_cast<std::size_t>(end) - first));
    got.insert(got.end(), part.begin(), part.end());
  };
  for (const AttentionChange& change : changes_) {
    read_to(change.position);
    session.apply(SetAttention{change.size});
  }
  read_to(1100);
  EXPECT_TRUE(same_bits(got, wanted_));
}

TEST_F(AutoAttentionTest, GivesTheSameBitsForEveryChunkThreadCountAndKernelTable) {
  struct Setting {
    std::int64_t chunk;
    int threads;
    std::string kernels;
  };
  std::vector<Setting> settings{{1, 1, ""},   {7, 3, ""},   {32, 2, ""},
                                {255, 4, ""}, {257, 1, ""}, {2000, 8, ""}};
  for (const Kernels* kernels : available_kernels()) settings.push_back({300, 2, kernels->isa});
  for (const Setting& setting : settings) {
    SessionOptions options = adapting();
    options.prefill_chunk = setting.chunk;
    options.threads = setting.threads;
    options.kernels = setting.kernels;
    Session session(model_, options);
    EXPECT_TRUE(same_bits(all_logits(session, text_), wanted_))
        << setting.chunk << " " << setting.threads << setting.kernels;
    ASSERT_EQ(session.attention_changes().size(), changes_.size());
    for (std::size_t i = 0; i < changes_.size(); ++i)
      EXPECT_EQ(session.attention_changes()[i].far_share, changes_[i].far_share);
  }
}

// Cut between two samples, at a decision, and between two decisions.
TEST_F(AutoAttentionTest, GoesOnFromASnapshotAForkAndATruncationAsIfNothingHadHappened) {
  const testing::TemporaryFolder folder;
  for (const Pos cut : {300, 512, 700}) {
    SessionOptions options = adapting();
    options.prefill_chunk = 90;
    Session session(model_, options);
    session.read(std::span(text_).first(static_cast<std::size_t>(cut)));
    const auto rest = std::span(text_).subspan(static_cast<std::size_t>(cut));

    session.save(folder.path("state.kv"));
    SessionOptions plain = adapting();
    plain.auto_attention.reset();
    Session restored(model_, plain);
    restored.load(folder.path("state.kv"));
    EXPECT_EQ(restored.options().auto_attention, options.auto_attention);
    EXPECT_TRUE(same_bits(all_logits(restored, rest), rows(wanted_, cut))) << cut;
    EXPECT_EQ(restored.attention_changes().size(), changes_.size());

    Session fork = session.fork();
    EXPECT_TRUE(same_bits(all_logits(fork, rest), rows(wanted_, cut))) << cut;

    session.read(testing::random_tokens(300, kVocabulary, 9));
    session.apply(Truncate{cut});
    EXPECT_TRUE(same_bits(all_logits(session, rest), rows(wanted_, cut))) << cut;
  }
}

TEST_F(AutoAttentionTest, BeginsAnewAfterClear_AndEndsWhenASizeIsSet) {
  reference_.clear();
  EXPECT_EQ(reference_.attention_size(), 64);
  EXPECT_TRUE(same_bits(all_logits(reference_, text_), wanted_));
  reference_.apply(SetAttention{100});
  EXPECT_FALSE(reference_.options().auto_attention);
  EXPECT_TRUE(reference_.attention_changes().empty());
  EXPECT_EQ(reference_.attention_size(), 100);
}

TEST_F(AutoAttentionTest, SeesSinksBesideIt_AndNoFurtherThanARollingWindow) {
  SessionOptions options = adapting();
  options.rolling = Rolling{4, 200};
  Session session(model_, options);
  const auto got = all_logits(session, text_);
  ASSERT_FALSE(session.attention_changes().empty());
  EXPECT_LE(*session.attention_size(), 200);
  options.prefill_chunk = 33;
  options.threads = 3;
  EXPECT_TRUE(same_bits(all_logits(model_, options, text_), got));
}

}  // namespace
}  // namespace kvtide
