// A procedural memory through sessions: the same bits whatever the chunks and threads, pins, and what shadow
// mode measures.
#include <gtest/gtest.h>

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

constexpr std::int64_t kVocabulary = 64;
// Window 64 and blocks of 32: the first block is sealed when 96 tokens were read.
constexpr std::size_t kFirstSeal = 96;

class ProceduralSessionTest : public ::testing::Test {
 protected:
  static ProceduralOptions memory() {
    ProceduralOptions o;
    o.window = 64;
    o.block = 32;
    o.rows = 8;
    o.summaries = 2;
    o.levels = 2;
    return o;
  }
  static SessionOptions with(const ProceduralOptions& procedural) {
    SessionOptions options;
    options.threads = 1;
    options.procedural = procedural;
    return options;
  }
  // Every head keeps every row, in the type of the window: nothing is lost.
  static ProceduralOptions lossless() {
    ProceduralOptions o = memory();
    o.heads.kv_heads = 2;
    o.heads.needs.assign(4, HeadNeed{.induction = 1.0f});
    o.row_type = RowType::f16;
    return o;
  }

  Session full_session() const;
  void expect_budget_of(Session& session, const Session& like) const;

  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model({.gain = 2.0f}).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = random_tokens(700, kVocabulary, 5);
};

TEST_F(ProceduralSessionTest, UntilTheFirstSeal_TheBitsAreThoseOfAMemoryThatKeepsEverything) {
  const auto whole = all_logits(model_, {.threads = 1}, text_);
  const auto compressed = all_logits(model_, with(memory()), text_);
  const std::size_t same = kFirstSeal * kVocabulary;
  EXPECT_TRUE(same_bits(std::span(whole).first(same), std::span(compressed).first(same)));
  EXPECT_FALSE(same_bits(whole, compressed)) << "nothing was compressed";
}

TEST_F(ProceduralSessionTest, ChunksAndThreadsChangeNoBit_WithPinsSheddingAndAdaptation) {
  ProceduralOptions o = memory();
  o.pins = {{40, 50}, {200, 203}};
  o.shed_below = 1e-4f;
  o.decay = 0.3f;
  o.retention = 0.25f;
  o.level_rows = 12;
  o.adapt = Adapt::entropy;
  SessionOptions options = with(o);
  const auto wanted = all_logits(model_, options, text_);
  for (const auto& [chunk, threads] : {std::pair<std::int64_t, int>{1, 1}, {7, 3}, {64, 2}}) {
    options.prefill_chunk = chunk;
    options.threads = threads;
    EXPECT_TRUE(same_bits(all_logits(model_, options, text_), wanted)) << "chunks of " << chunk;
  }
}

TEST_F(ProceduralSessionTest, AForkGoesOnWithTheSameBits_AndSoDoesItsOriginal) {
  const std::span<const TokenId> text = text_;
  Session session(model_, with(memory())), other(model_, with(memory()));
  for (Session* s : {&session, &other}) s->read(text.first(250));
  Session fork = session.fork();
  const auto wanted = all_logits(other, text.subspan(250));
  EXPECT_TRUE(same_bits(all_logits(fork, text.subspan(250)), wanted));
  EXPECT_TRUE(same_bits(all_logits(session, text.subspan(250)), wanted));
}

TEST_F(ProceduralSessionTest, Pin_KeepsPositionsThatAreStillToCome) {
  Session session(model_, with(memory()));
  session.pin({100, 110});
  session.read(text_);
  const auto counts = *session.procedural_counts();
  EXPECT_EQ(counts.pinned_rows, 10 * 4) << "two layers of two KV heads";
}

TEST_F(ProceduralSessionTest, Pin_RefusesWhatIsSummarisedAlready_AndChangesNothing) {
  Session session(model_, with(memory())), other(model_, with(memory()));
  const std::span<const TokenId> text = text_;
  for (Session* s : {&session, &other}) s->read(text.first(kFirstSeal));
  expect_refused(ErrorCode::invalid_argument,
                 "cannot pin positions 20 to 40: they are summarised already, up to position 32", [&] {
                   session.pin({20, 40});
                 });
  EXPECT_TRUE(
      same_bits(all_logits(session, text.subspan(kFirstSeal)), all_logits(other, text.subspan(kFirstSeal))));
}

TEST_F(ProceduralSessionTest, Pin_RefusesWhatTheBudgetCannotHold_WithBothNumbers) {
  ProceduralOptions o = memory();
  o.full_rows = 64;
  o.budget = 1 << 20;
  Session session(model_, with(o));
  session.pin({100, 110});
  expect_refused(ErrorCode::invalid_argument, "more than its budget of 1M", [&] {
    session.pin({0, 1000000});
  });
  EXPECT_EQ(session.options().procedural->pins, (std::vector<PosRange>{{100, 110}}));
}

TEST_F(ProceduralSessionTest, ABudgetHolds_AlsoWhereTheTextIsLongerThanExpected_AndItsSnapshotLoads) {
  ProceduralOptions o;
  o.heads = memory().heads;
  o.budget = 700'000;
  o.budget_for = 300;
  Session session(model_, with(o));
  session.read(text_);
  session.read(text_);
  EXPECT_GT(session.position(), 3 * o.budget_for);
  EXPECT_LE(session.procedural_counts()->bytes_peak, o.budget);
  EXPECT_LE(session.procedural_counts()->bytes_peak, session.procedural_plan()->total());
  const testing::TemporaryFolder folder;
  session.save(folder.path("a"));
  Session loaded(model_, with(o));
  loaded.load(folder.path("a"));
  EXPECT_EQ(loaded.position(), session.position());
}

TEST_F(ProceduralSessionTest, ABudgetWithoutAnEnd_KeepsEveryRowUntilItIsFull_InAnyChunks) {
  ProceduralOptions o;
  o.heads = memory().heads;
  o.budget = 1;
  try {
    const Session session(model_, with(o));
  } catch (const Error& error) {
    o.budget = std::stoll(error.message().substr(error.message().find_last_of(' '))) * 1024 * 3 / 2;
  }
  SessionOptions small_chunks = with(o);
  small_chunks.prefill_chunk = 7;
  Session session(model_, with(o)), whole(model_, {.threads = 1});
  ASSERT_GT(session.procedural_plan()->exact_first, 0);
  EXPECT_LE(session.procedural_plan()->total(), o.budget);
  std::size_t exact = 0;
  while (exact < text_.size() && session.newest_seal().empty()) {
    const std::span<const TokenId> token = std::span(text_).subspan(exact++, 1);
    session.read(token);
    whole.read(token);
    ASSERT_TRUE(same_bits({session.logits().begin(), session.logits().end()},
                          {whole.logits().begin(), whole.logits().end()}))
        << exact;
  }
  EXPECT_GT(session.procedural_counts()->blocks_sealed, 1) << "many at once";
  const std::span<const TokenId> rest = std::span(text_).subspan(exact);
  ASSERT_FALSE(rest.empty());
  session.read(rest);
  EXPECT_LE(session.procedural_counts()->bytes_peak, o.budget);
  const auto alone = all_logits(model_, small_chunks, text_);
  EXPECT_TRUE(same_bits({session.logits().begin(), session.logits().end()},
                        {alone.end() - kVocabulary, alone.end()}));
  o.exact_first = false;
  Session sooner(model_, with(o));
  sooner.read(std::span(text_).first(exact - 1));
  EXPECT_GT(sooner.procedural_counts()->blocks_sealed, 0);
}

TEST_F(ProceduralSessionTest, ABudgetThatHoldsTheExpectedText_HasTheBitsOfAFullCache) {
  Session whole(model_, {.threads = 1});
  whole.read(text_);
  ProceduralOptions o;
  o.heads = memory().heads;
  o.budget_for = static_cast<Pos>(text_.size());
  o.budget = whole.memory().kv + whole.memory().kv / 50 + (1 << 20);
  Session session(model_, with(o));
  session.read(text_);
  EXPECT_TRUE(same_bits({session.logits().begin(), session.logits().end()},
                        {whole.logits().begin(), whole.logits().end()}));
  EXPECT_EQ(session.procedural_counts()->blocks_sealed, 0);
  session.read(text_);  // more than was expected
  EXPECT_LE(session.procedural_counts()->bytes_peak, o.budget);
}

TEST_F(ProceduralSessionTest, AMemoryThatGrows_RefusesTokensThatItsBudgetHasNoRoomFor_AndStaysAsItWas) {
  ProceduralOptions o = memory();
  o.levels = 0;
  o.budget_for = 600;
  o.budget = 1;
  const auto smallest = [&] {
    try {
      const Session session(model_, with(o));
    } catch (const Error& error) {
      return std::stoll(error.message().substr(error.message().find_last_of(' '))) * 1024;
    }
    return -1LL;
  };
  o.budget = smallest();
  ASSERT_GT(o.budget, 0);
  Session session(model_, with(o)), other(model_, with(o));
  const std::span<const TokenId> text = text_;
  for (Session* s : {&session, &other}) s->read(text.first(600));
  expect_refused(ErrorCode::context_full, "was planned for 600 tokens",
                 [&] { session.read(text.subspan(600)); });
  EXPECT_EQ(session.position(), 600);
  EXPECT_LE(session.procedural_counts()->bytes_peak, o.budget);
  EXPECT_TRUE(same_bits({session.logits().begin(), session.logits().end()},
                        {other.logits().begin(), other.logits().end()}));
}

// A session with a memory that grows and as few bytes as 600 tokens of it need, which it has read.
Session ProceduralSessionTest::full_session() const {
  ProceduralOptions o = memory();
  o.levels = 0;
  o.budget_for = 600;
  o.budget = 1;
  try {
    const Session session(model_, with(o));
  } catch (const Error& error) {
    o.budget = std::stoll(error.message().substr(error.message().find_last_of(' '))) * 1024;
  }
  Session session(model_, with(o));
  session.read(std::span(text_).first(600));
  return session;
}

void ProceduralSessionTest::expect_budget_of(Session& session, const Session& like) const {
  const std::span<const TokenId> text = text_;
  EXPECT_EQ(session.options().procedural->budget, like.options().procedural->budget);
  EXPECT_EQ(session.options().procedural->budget_for, 600);
  EXPECT_EQ(session.procedural_plan()->total(), like.procedural_plan()->total());
  expect_refused(ErrorCode::context_full, "was planned for 600 tokens",
                 [&] { session.read(text.subspan(600)); });
  EXPECT_EQ(session.position(), 600);
}

TEST_F(ProceduralSessionTest, ABudget_HoldsInASessionThatLoadsTheMemory) {
  const Session saved = full_session();
  const testing::TemporaryFolder folder;
  saved.save(folder.path("a"));
  Session session(model_, {.threads = 1});
  session.load(folder.path("a"));
  expect_budget_of(session, saved);
}

TEST_F(ProceduralSessionTest, ABudget_HoldsInASessionThatIsRestoredFromAState) {
  const Session other = full_session();
  Session session(model_, {.threads = 1});
  session.restore(other.state());
  expect_budget_of(session, other);
  Session fork = session.fork();
  expect_budget_of(fork, other);
}

TEST_F(ProceduralSessionTest, ASessionWithABudgetOfItsOwn_KeepsItOverThatOfWhatItLoads) {
  const Session other = full_session();
  const std::int64_t bytes = other.options().procedural->budget;
  ProceduralOptions o = memory();
  o.budget_for = 600;
  o.budget = bytes + 4096;
  Session session(model_, with(o));
  session.restore(other.state());
  EXPECT_EQ(session.options().procedural->budget, bytes + 4096);
  ProceduralOptions larger = memory();
  larger.window = 1024;
  larger.block = 512;
  const Session elsewhere(model_, with(larger));
  expect_refused(ErrorCode::invalid_argument, "more than the KV budget of",
                 [&] { session.restore(elsewhere.state()); });
  EXPECT_EQ(session.position(), 600);
}

TEST_F(ProceduralSessionTest, ABudget_RefusesPinsInASessionThatLoadsTheMemory) {
  ProceduralOptions o = memory();
  o.full_rows = 64;
  o.budget = 1 << 20;
  Session saved(model_, with(o));
  saved.read(std::span(text_).first(50));
  const testing::TemporaryFolder folder;
  saved.save(folder.path("a"));
  Session session(model_, {.threads = 1});
  session.load(folder.path("a"));
  session.pin({100, 110});
  expect_refused(ErrorCode::invalid_argument, "more than its budget of 1M", [&] {
    session.pin({60, 1000000});
  });
  EXPECT_EQ(session.options().procedural->pins, (std::vector<PosRange>{{100, 110}}));
}

TEST_F(ProceduralSessionTest, Pin_NeedsAProceduralMemory) {
  Session session(model_, {.threads = 1});
  expect_refused(ErrorCode::invalid_argument, "only a procedural memory", [&] { session.pin({0, 4}); });
}

TEST_F(ProceduralSessionTest, TheNewestSeal_SaysWhichBlockLeftTheWindowAndWhatIsHeldSince) {
  Session session(model_, with(memory()));
  const std::span<const TokenId> text = text_;
  session.read(text.first(kFirstSeal - 1));
  EXPECT_TRUE(session.newest_seal().empty());
  session.read(text.subspan(kFirstSeal - 1, 3));
  const auto events = session.newest_seal();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ProceduralEvent::Kind::seal);
  EXPECT_EQ(events[0].position, 96);
  EXPECT_EQ(events[0].block, (PosRange{4, 32})) << "sinks are no part of a block";
  EXPECT_EQ(events[0].after.outlier_rows + events[0].after.summary_rows[0], 4 * 8);
}

TEST_F(ProceduralSessionTest, Shadow_ChangesNoBit) {
  SessionOptions options = with(memory());
  const auto wanted = all_logits(model_, options, text_);
  options.shadow = ShadowOptions{.every = 16};
  Session session(model_, options);
  EXPECT_TRUE(same_bits(all_logits(session, text_), wanted));
  EXPECT_GT(session.drift()->tokens, 30);
}

TEST_F(ProceduralSessionTest, Shadow_FindsNoDriftWhereEveryRowIsKept) {
  SessionOptions options = with(lossless());
  options.exact = true;  // as the shadow computes: rounded attention differs by some 1e-3
  options.shadow = ShadowOptions{.every = 16};
  Session session(model_, options);
  session.read(text_);
  const Drift drift = *session.drift();
  EXPECT_EQ(drift.tokens, (700 - 96) / 16) << "samples behind the first seal";
  EXPECT_LT(drift.output.p99, 1e-4) << "the same rows in another order of summation";
  EXPECT_LT(drift.log_mass.p99, 1e-4);
  EXPECT_GT(drift.overlap.mean, 0.999);
}

TEST_F(ProceduralSessionTest, Shadow_FindsLittleDriftInFourBits_ButSome) {
  testing::SampleModel sample{.gain = 2.0f};
  sample.head_dim = 32;
  const testing::TemporaryFile file("wide.gguf", testing::sample_model(sample).build().bytes);
  const Model model(file.path());
  SessionOptions options = with(lossless());
  options.shadow = ShadowOptions{.every = 10};
  options.procedural->full_type = RowType::q4_0;
  Session session(model, options);
  session.read(text_);
  const Drift drift = *session.drift();
  EXPECT_GT(drift.output.mean, 0.001);
  EXPECT_LT(drift.output.mean, 0.2);
  EXPECT_GT(drift.overlap.mean, 0.75) << "the most attended rows are found where they are";
}

TEST_F(ProceduralSessionTest, Shadow_SeesFarRowsFromWhereTheMemorySeesThem) {
  const testing::TemporaryFile file{"short.gguf",
                                    testing::sample_model({.context = 256, .gain = 2.0f}).build().bytes};
  const Model model(file.path());
  SessionOptions options = with(lossless());
  options.exact = true;  // as the shadow computes: rounded attention differs by some 1e-3
  options.shadow = ShadowOptions{.every = 16};
  Session session(model, options);
  session.read(text_);  // far beyond the 256 tokens of its training
  EXPECT_LT(session.drift()->output.p99, 1e-4);
}

TEST_F(ProceduralSessionTest, Shadow_MeasuresWhatCompressionLoses_AndFewerRowsLoseMore) {
  double errors[2];
  int i = 0;
  for (const std::int64_t rows : {4, 24}) {
    ProceduralOptions o = memory();
    o.rows = rows;
    SessionOptions options = with(o);
    options.shadow = ShadowOptions{.every = 16};
    Session session(model_, options);
    session.read(text_);
    const Drift drift = *session.drift();
    EXPECT_EQ(drift.heads.size(), 2u * 4u) << "two layers of four query heads";
    EXPECT_GT(drift.bytes, 0);
    EXPECT_LT(drift.overlap.mean, 0.99);
    errors[i++] = drift.output.mean;
  }
  EXPECT_GT(errors[0], 1.2 * errors[1]);
  EXPECT_GT(errors[1], 1e-3);
}

TEST_F(ProceduralSessionTest, Shadow_LooksAtTheLayersItWasTold) {
  SessionOptions options = with(memory());
  options.shadow = ShadowOptions{.every = 16, .first_layer = 1, .last_layer = 1};
  Session session(model_, options);
  session.read(text_);
  const Drift drift = *session.drift();
  EXPECT_EQ(drift.heads.size(), 4u);
  for (const HeadDrift& head : drift.heads) EXPECT_EQ(head.layer, 1);
  EXPECT_EQ(drift.worst_layer, 1);
}

TEST_F(ProceduralSessionTest, Shadow_StartsAnewWithTheText) {
  SessionOptions options = with(memory());
  options.shadow = ShadowOptions{.every = 16};
  Session session(model_, options);
  session.read(text_);
  session.clear();
  EXPECT_EQ(session.drift()->tokens, 0);
  EXPECT_EQ(session.drift()->bytes, 0);
  EXPECT_FALSE(session.fork().drift()) << "a fork would lack what was read before";
}

TEST_F(ProceduralSessionTest, Shadow_NeedsSomethingToCompareWith) {
  SessionOptions options;
  options.threads = 1;
  options.shadow = ShadowOptions{};
  expect_refused(ErrorCode::invalid_argument, "no procedural memory",
                 [&] { Session session(model_, options); });
  options = with(memory());
  options.shadow = ShadowOptions{.every = 16, .first_layer = 1, .last_layer = 2};
  expect_refused(ErrorCode::invalid_argument, "layers 0-1, not 1-2",
                 [&] { Session session(model_, options); });
}

}  // namespace
}  // namespace kvtide
