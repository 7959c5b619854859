// shared_rows_test.cpp: layers that read the rows of earlier ones, with heads of two sizes (Gemma 4): one store serves them,
// in forks, snapshots, in going back and in a procedural memory.
#include <gtest/gtest.h>

#include <map>

#include "base/mapped_file.h"
#include "kvtide/session.h"
#include "kvtide/stateful.h"
#include "tests/engine/carried.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"
#include "tests/state/snapshot_bytes.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::expect_refused;
using testing::random_tokens;
using testing::same_bits;
using testing::short_session;

class SharedRows : public ::testing::Test {
 protected:
  // Window 32 and blocks of 16. Every head keeps every row where all of them copy.
  static SessionOptions procedural(bool lossless) {
    ProceduralOptions o;
    o.window = 32;
    o.block = 16;
    o.rows = 4;
    o.summaries = 1;
    o.row_type = RowType::f16;
    if (lossless) {
      o.heads.kv_heads = 1;
      o.heads.needs.assign(3, HeadNeed{.induction = 1.0f});
    }
    SessionOptions options = short_session();
    options.context = 400;
    options.procedural = o;
    return options;
  }

  const Model model_{KVTIDE_GOLDENS "/folders/gemma4-f32"};
  const std::vector<TokenId> text_ = random_tokens(150, model_.vocabulary(), 5);
};

TEST_F(SharedRows, AStateKeepsThoseOfTheLayersThatMakeThem) {
  Session session(model_, short_session());
  const auto layers = session.state().shape().layers;
  ASSERT_EQ(layers.size(), 3u);  // of 5
  EXPECT_EQ(layers[0].kv_heads, 2);
  EXPECT_EQ(layers[0].head_dim, 8);
  EXPECT_EQ(layers[0].window, 16);
  EXPECT_EQ(layers[2].kv_heads, 1);
  EXPECT_EQ(layers[2].head_dim, 16);
}

TEST_F(SharedRows, ForksSnapshotsAndTokensTakenBackGoOnWithTheSameBits) {
  const testing::TemporaryFolder temporary;
  const auto other = random_tokens(20, model_.vocabulary(), 8);
  SessionOptions options = short_session();
  options.checkpoints.every = 40;
  Session session(model_, options), restored(model_, options), fresh(model_, options);
  session.read(text_);
  session.save(temporary.path("shared.kv"));
  restored.load(temporary.path("shared.kv"));
  Session fork = session.fork();
  fresh.read(std::span(text_).first(80));
  session.apply(Truncate{80});
  const auto wanted = all_logits(fresh, other);
  EXPECT_TRUE(same_bits(all_logits(session, other), wanted));
  Session whole(model_, options);
  whole.read(text_);
  const auto further = all_logits(whole, other);
  EXPECT_TRUE(same_bits(all_logits(fork, other), further));
  EXPECT_TRUE(same_bits(all_logits(restored, other), further));
}

TEST_F(SharedRows, TextsInOnePassGetTheBitsOfPassesOfTheirOwn) {
  testing::expect_passes_of_their_own(model_);
}

TEST_F(SharedRows, AProceduralMemoryThatKeepsEveryRow_IsTheWholeMemory) {
  SessionOptions kept = procedural(true), whole = short_session();
  kept.exact = whole.exact = true;
  const auto got = all_logits(model_, kept, text_), wanted = all_logits(model_, whole, text_);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-4f) << i;
}

TEST_F(SharedRows, AProceduralMemoryGivesTheSameBitsForChunksAndThreads_AndForgetsSomething) {
  SessionOptions options = procedural(false);
  const auto wanted = all_logits(model_, options, text_);
  EXPECT_FALSE(same_bits(all_logits(model_, short_session(), text_), wanted)) << "nothing was compressed";
  for (const auto& [chunk, threads] : std::map<std::int64_t, int>{{1, 1}, {7, 3}, {64, 2}}) {
    options.prefill_chunk = chunk;
    options.threads = threads;
    EXPECT_TRUE(same_bits(all_logits(model_, options, text_), wanted)) << "chunks of " << chunk;
  }
}

TEST_F(SharedRows, RowsRankedByRepetitionAreRefused_InOptionsAndInSnapshots) {
  SessionOptions options = procedural(false);
  options.procedural->score = RowScore::repetition;
  expect_refused(ErrorCode::invalid_argument, "by repetition", [&] { Session(model_, options); });

  options.procedural->score = RowScore::mixed;
  Session session(model_, options);
  session.read(text_);
  const testing::TemporaryFolder temporary;
  session.save(temporary.path("mixed.kv"));
  const MappedFile saved(temporary.path("mixed.kv"));
  testing::SnapshotParts parts = testing::take_apart(saved.bytes());
  const std::string mixed = "\"score\":\"mixed\"", repetition = "\"score\":\"repetition\"";
  const auto at = parts.header.find(mixed);
  ASSERT_NE(at, std::string::npos);
  parts.header.replace(at, mixed.size(), repetition);
  const auto file = temporary.write("repetition.kv", testing::put_together(parts));
  expect_refused(ErrorCode::invalid_argument, "by repetition", [&] { session.load(file); });
  EXPECT_EQ(session.tokens(), text_) << "a refused file changes nothing";
}

TEST_F(SharedRows, MemoriesOfOneShapeAreRefused) {
  expect_refused(ErrorCode::invalid_argument, "sliding windows",
                 [&] { StatefulModel(model_, short_session()); });
}

}  // namespace
}  // namespace kvtide
