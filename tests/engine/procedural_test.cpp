// A procedural memory through sessions: the same bits whatever the chunks, threads, kernels, forks, rollbacks
// and snapshots; budgets that hold; rows that stand for every token that was read.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::same_bits;

constexpr std::int64_t kTokensOfTheModel = 64;
constexpr std::int64_t kSinks = 4, kWindow = 64, kBlock = 32;

// A model that was trained for 512 tokens reads 1,100: distances are squeezed on the way.
class ProceduralTest : public ::testing::Test {
 protected:
  static testing::SampleModel sample() {
    testing::SampleModel out;
    out.types = {DType::q8_0, DType::q4_1};
    out.head_dim = 32;
    out.context = 512;
    out.gain = 1.5f;
    return out;
  }
  static ProceduralOptions memory() {
    ProceduralOptions p;
    p.sinks = kSinks;
    p.window = kWindow;
    p.block = kBlock;
    p.rows = 10;
    p.summaries = 2;
    p.levels = 2;
    p.full_rows = 192;
    p.heads.kv_heads = 2;
    p.heads.needs = {{0.0f, 1.0f, 1.0f}, {0.5f, 1.0f, 1.0f}, {0.0f, 2.0f, 0.5f}, {0.0f, 0.5f, 2.0f}};
    return p;
  }
  static SessionOptions options(std::int64_t chunk = 512, int threads = 1) {
    SessionOptions o;
    o.threads = threads;
    o.prefill_chunk = chunk;
    o.procedural = memory();
    return o;
  }
  std::span<const TokenId> text(std::size_t first, std::size_t last) const {
    return std::span(text_).subspan(first, last - first);
  }
  std::span<const float> rows(std::size_t first, std::size_t last) const {
    return std::span(wanted_).subspan(first * kTokensOfTheModel, (last - first) * kTokensOfTheModel);
  }

  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model(sample()).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = testing::random_tokens(1100, kTokensOfTheModel, 5);
  Session reference_{model_, options()};
  const std::vector<float> wanted_ = all_logits(reference_, text_);
};

TEST_F(ProceduralTest, HoldsWhatItSaysItHolds) {
  const ProceduralCounts counts = *reference_.procedural_counts();
  // Blocks of 32 are sealed whenever 64 + 32 positions are exact: 1,100 tokens leave (1100 - 64) / 32 = 32.
  EXPECT_EQ(counts.blocks_sealed, 32);
  EXPECT_EQ(counts.sink_rows, 4 * kSinks) << "two layers of two heads";
  EXPECT_EQ(counts.window_rows, 4 * (1100 - 32 * kBlock));
  EXPECT_GT(counts.consolidations, 0);
  EXPECT_GT(counts.thinned, 0);
  EXPECT_LE(counts.full_rows, 192 + kBlock);
  std::int64_t compact = counts.outlier_rows;
  for (const std::int64_t level : counts.summary_rows) compact += level;
  // At most eight blocks of the first level and six of the next, on average 10 rows each, one head apart.
  EXPECT_GT(compact, 0);
  EXPECT_LE(compact, 14 * 40);
  EXPECT_LT(reference_.rows(), kSinks + kWindow + kBlock);
  EXPECT_EQ(reference_.position(), 1100);
  EXPECT_GE(counts.bytes_peak, reference_.memory().kv);
  EXPECT_LE(counts.bytes_peak, reference_.procedural_plan()->total());
}

TEST_F(ProceduralTest, IsBitIdenticalForEveryChunkAndThreadCount) {
  for (const std::int64_t chunk : {1, 7, 31, 100, 512})
    for (const int threads : {1, 3})
      EXPECT_TRUE(same_bits(all_logits(model_, options(chunk, threads), text_), wanted_))
          << chunk << " tokens at once, " << threads << " threads";
}

TEST_F(ProceduralTest, IsBitIdenticalForEveryKernelTable) {
  for (const Kernels* kernels : available_kernels()) {
    SessionOptions o = options();
    o.kernels = kernels->isa;
    EXPECT_TRUE(same_bits(all_logits(model_, o, text_), wanted_)) << kernels->isa;
  }
}

TEST_F(ProceduralTest, BeforeTheFirstBlockIsSealedItIsAFullMemory) {
  SessionOptions full = options();
  full.procedural.reset();
  const auto kept = all_logits(model_, full, text(0, 200));
  EXPECT_TRUE(same_bits(std::span(kept).first(96 * kTokensOfTheModel), rows(0, 96)));
  EXPECT_FALSE(same_bits(std::span(kept).subspan(96 * kTokensOfTheModel), rows(96, 200)));
}

TEST_F(ProceduralTest, AForkGoesOnWithTheSameBitsAndLeavesItsParentAlone) {
  Session parent(model_, options());
  parent.read(text(0, 700));
  Session fork = parent.fork();
  fork.read(testing::random_tokens(150, kTokensOfTheModel, 6));
  EXPECT_TRUE(same_bits(all_logits(parent, text(700, 900)), rows(700, 900)));
  Session second = parent.fork();
  EXPECT_TRUE(same_bits(all_logits(second, text(900, 1100)), rows(900, 1100)));
  EXPECT_TRUE(same_bits(all_logits(parent, text(900, 1100)), rows(900, 1100)));
}

TEST_F(ProceduralTest, ASnapshotGoesOnWithTheSameBitsWhereverItWasTaken) {
  const testing::TemporaryFolder folder;
  for (const std::size_t at : {50u, 96u, 97u, 500u, 640u, 1000u}) {
    Session first(model_, options());
    first.read(text(0, at));
    first.save(folder.path("s.kv"));
    Session second(model_, options(64, 2));
    second.read(text(300, 320));
    second.load(folder.path("s.kv"));
    EXPECT_EQ(second.position(), static_cast<Pos>(at));
    EXPECT_TRUE(same_bits(all_logits(second, text(at, 1100)), rows(at, 1100))) << at;
    EXPECT_EQ(second.procedural_counts()->blocks_sealed, 32);
    EXPECT_EQ(second.procedural_counts()->consolidations, reference_.procedural_counts()->consolidations);
    EXPECT_EQ(second.memory().kv, reference_.memory().kv);
  }
}

TEST_F(ProceduralTest, ASnapshotBringsItsMemoryToASessionOfAnotherKind) {
  const testing::TemporaryFolder folder;
  Session first(model_, options());
  first.read(text(0, 600));
  first.save(folder.path("s.kv"));
  SessionOptions plain = options();
  plain.procedural.reset();
  Session second(model_, plain);
  second.load(folder.path("s.kv"));
  ASSERT_TRUE(second.options().procedural.has_value());
  EXPECT_EQ(second.options().procedural->window, kWindow);
  EXPECT_NEAR(static_cast<double>(second.options().procedural->rows), 10.0, 1.0) << "rounded per head";
  EXPECT_TRUE(same_bits(all_logits(second, text(600, 1100)), rows(600, 1100)));
}

TEST_F(ProceduralTest, ADamagedSnapshotIsRefusedAndChangesNothing) {
  const testing::TemporaryFolder folder;
  Session first(model_, options());
  first.read(text(0, 600));
  first.save(folder.path("s.kv"));
  std::ifstream in(folder.path("s.kv"), std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  Session live(model_, options());
  live.read(text(0, 700));
  for (std::size_t at = 0; at < sound.size(); at += 1 + sound.size() / 60) {
    std::string bad = sound;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    std::ofstream(folder.path("bad.kv"), std::ios::binary) << bad;
    EXPECT_THROW(live.load(folder.path("bad.kv")), Error) << "byte " << at;
    std::ofstream(folder.path("bad.kv"), std::ios::binary) << sound.substr(0, at);
    EXPECT_THROW(live.load(folder.path("bad.kv")), Error) << at << " bytes";
  }
  EXPECT_TRUE(same_bits(all_logits(live, text(700, 1100)), rows(700, 1100)));
}

TEST_F(ProceduralTest, TakesBackWhatNoBlockHasSeenAndRefusesMore) {
  Session session(model_, options());
  session.read(text(0, 500));
  // The newest seal was at 480 = 416 + 64.
  session.apply(Truncate{481});
  EXPECT_TRUE(same_bits(all_logits(session, text(481, 1100)), rows(481, 1100)));
  const auto plan = session.plan(Truncate{900});
  EXPECT_FALSE(plan.refusal().empty());
  EXPECT_THROW(session.apply(Truncate{900}), Error);
  EXPECT_EQ(session.position(), 1100);
}

TEST_F(ProceduralTest, ClearedItReadsAsIfForTheFirstTime) {
  Session session(model_, options());
  session.read(text(100, 800));
  session.clear();
  EXPECT_EQ(session.procedural_counts()->blocks_sealed, 0);
  EXPECT_TRUE(same_bits(all_logits(session, text_), wanted_));
}

TEST_F(ProceduralTest, KeepsItsBudgetAtEveryMomentAndUsesIt) {
  for (const std::int64_t budget : {700'000, 1'000'000, 2'000'000}) {
    SessionOptions o = options(64, 2);
    o.procedural = ProceduralOptions{};
    o.procedural->budget = budget;
    o.procedural->heads = memory().heads;
    Session session(model_, o);
    EXPECT_LE(session.procedural_plan()->total(), budget);
    for (std::size_t at = 0; at < text_.size(); at += 20) {
      session.read(text(at, at + 20));
      ASSERT_LE(session.memory().kv, budget) << "after " << at + 20;
    }
    EXPECT_LE(session.procedural_counts()->bytes_peak, budget);
  }
}

TEST_F(ProceduralTest, ABudgetThatHoldsTheTextHasTheBitsOfTheFullCache) {
  SessionOptions o;
  o.threads = 1;
  Session full(model_, o);
  o.procedural.emplace();
  o.procedural->budget = 8 << 20;
  o.procedural->budget_for = 500;
  Session session(model_, o);
  EXPECT_TRUE(same_bits(all_logits(session, text(0, 500)), all_logits(full, text(0, 500))));
  session.read(text(500, 1100));  // more than was expected
  EXPECT_LE(session.procedural_counts()->bytes_peak, 8 << 20);
}

TEST_F(ProceduralTest, ABudgetThatIsTooSmallIsRefusedWithTheSmallestThatWorks) {
  SessionOptions o = options();
  o.procedural = ProceduralOptions{};
  o.procedural->budget = 1000;
  std::int64_t smallest = 0;
  try {
    Session session(model_, o);
    ADD_FAILURE() << "no refusal";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.message().back(), 'K');
    smallest = std::stoll(error.message().substr(error.message().find_last_of(' '))) * 1024;
  }
  o.procedural->budget = smallest;
  Session session(model_, o);
  session.read(text_);
  EXPECT_LE(session.procedural_counts()->bytes_peak, smallest);
  o.procedural->budget = smallest - 1024;
  EXPECT_THROW(Session(model_, o), Error);
}

TEST_F(ProceduralTest, InFourBits_ChunksThreadsKernelsForksAndSnapshotsChangeNoBit) {
  SessionOptions o = options(512, 2);
  o.procedural->full_type = RowType::q4_0;
  const auto whole = all_logits(model_, o, text_);
  EXPECT_FALSE(same_bits(whole, wanted_)) << "eight bits are no other";
  for (const Kernels* kernels : available_kernels()) {
    SessionOptions other = o;
    other.kernels = kernels->isa;
    other.prefill_chunk = 13;
    other.threads = 1;
    EXPECT_TRUE(same_bits(all_logits(model_, other, text_), whole)) << kernels->isa;
  }
  const testing::TemporaryFolder folder;
  Session first(model_, o);
  first.read(text(0, 700));
  Session fork = first.fork();
  first.save(folder.path("a"));
  Session loaded(model_, options());
  loaded.load(folder.path("a"));
  EXPECT_EQ(loaded.options().procedural->full_type, RowType::q4_0);
  const auto rest = std::span(whole).subspan(700 * kTokensOfTheModel);
  EXPECT_TRUE(same_bits(all_logits(fork, text(700, 1100)), rest));
  EXPECT_TRUE(same_bits(all_logits(loaded, text(700, 1100)), rest));
}

TEST_F(ProceduralTest, ABudgetTakesFourBits_WhereEightWouldLeaveOnlyAPartOfTheRows) {
  const auto picked = [&](std::int64_t budget, Pos tokens, RowType wanted = RowType::automatic) {
    SessionOptions o = options();
    o.procedural = ProceduralOptions{};
    o.procedural->budget = budget;
    o.procedural->budget_for = tokens;
    o.procedural->heads = memory().heads;
    o.procedural->full_type = wanted;
    o.procedural->row_type = RowType::q8_0;  // other rows play no part in it
    Session session(model_, o);
    EXPECT_LE(session.procedural_plan()->total(), budget);
    return *session.options().procedural;
  };
  int four_bits = 0, eight_bits = 0;
  for (Pos tokens = 1000; tokens < 200'000; tokens += tokens / 3) {
    const ProceduralOptions eight = picked(700'000, tokens, RowType::q8_0);
    const ProceduralOptions free = picked(700'000, tokens);
    if (eight.window + eight.full_rows + eight.block <= tokens) {
      ++four_bits;
      EXPECT_EQ(free.full_type, RowType::q4_0) << tokens;
      EXPECT_GT(free.full_rows, eight.full_rows) << tokens;
      // What is left of the budget makes other things larger only where the whole text is held.
      if (free.window + free.full_rows + free.block > tokens) continue;
      ASSERT_LT(eight.full_rows * 2, 12'288) << "the cap on rows hides the choice";
      EXPECT_EQ(free.window, eight.window);
      EXPECT_GT(free.full_rows * 2, eight.full_rows * 3) << tokens;
    } else {
      EXPECT_EQ(free.window, eight.window);
      ++eight_bits;
      EXPECT_EQ(free.full_type, RowType::q8_0) << tokens;
      EXPECT_EQ(free.full_rows, eight.full_rows) << tokens;
    }
  }
  EXPECT_GE(four_bits, 3);
  EXPECT_GE(eight_bits, 3);
  EXPECT_EQ(picked(700'000, 0).full_type, RowType::q4_0) << "a text without end";
  EXPECT_EQ(picked(700'000, 2'000, RowType::q4_0).full_type, RowType::q4_0);
  EXPECT_EQ(picked(700'000, 0, RowType::f16).full_type, RowType::f16);
}

TEST_F(ProceduralTest, FourBitsNeedHeadsOfAMultipleOf32) {
  testing::SampleModel narrow = sample();
  narrow.head_dim = 16;
  const testing::TemporaryFile file("narrow.gguf", testing::sample_model(narrow).build().bytes);
  const Model model(file.path());
  SessionOptions o = options();
  for (const RowType type : {RowType::q4_0, RowType::q8_0}) {
    o.procedural->full_type = type;
    try {
      Session session(model, o);
      ADD_FAILURE() << "no refusal";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.message().find("need heads of a multiple of 32 elements, not 16; use f16"),
                std::string::npos)
          << error.message();
    }
  }
  o.procedural->full_type = RowType::automatic;
  EXPECT_EQ(Session(model, o).options().procedural->full_type, RowType::f16);
}

TEST_F(ProceduralTest, EveryKindOfSummaryScoreAndRowTypeIsDeterministic) {
  for (const Summary summary : {Summary::fit, Summary::cluster, Summary::positional})
    for (const RowScore score : {RowScore::mixed, RowScore::novelty, RowScore::value_norm,
                                 RowScore::attention, RowScore::repetition})
      for (const ElementType exact : {ElementType::f16, ElementType::q8_0}) {
        SessionOptions o = options(512, 2);
        o.key_type = o.value_type = exact;
        o.procedural->summary = summary;
        o.procedural->score = score;
        o.procedural->row_type = exact == ElementType::f16 ? RowType::f16 : RowType::q8_0;
        o.procedural->far = score == RowScore::novelty ? FarRule::clamp : FarRule::log;
        const auto whole = all_logits(model_, o, text(0, 400));
        o.prefill_chunk = 13;
        o.threads = 1;
        EXPECT_TRUE(same_bits(all_logits(model_, o, text(0, 400)), whole));
      }
}

}  // namespace
}  // namespace kvtide
