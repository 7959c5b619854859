// delta_net_test.cpp: what gated delta nets beside attention must keep of all promises: bits, taking back, forks,
// snapshots, several texts in one pass.
#include <gtest/gtest.h>

#include <map>

#include "kernels/kernels.h"
#include "kvtide/stateful.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::expect_refused;
using testing::random_tokens;
using testing::same_bits;

constexpr const char* kFolders[] = {KVTIDE_GOLDENS "/folders/qwen3-5-f32",
                                    KVTIDE_GOLDENS "/folders/qwen3-5-moe-f32",
                                    KVTIDE_GOLDENS "/folders/qwen3-next-f32"};

SessionOptions small_options() {
  SessionOptions options;
  options.context = 200;
  options.threads = 2;
  return options;
}

void expect_same_carried(const Session& a, const Session& b) {
  const auto got = a.state().carried(), wanted = b.state().carried();
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(same_bits(got[i].values, wanted[i].values)) << got[i].name;
}

TEST(DeltaNet, LogitsAreTheSameBitsForEveryChunkAndThreadCount_OnEveryKernelTable) {
  for (const char* folder : kFolders) {
    const Model model(folder);
    const auto tokens = random_tokens(100, model.vocabulary(), 1);
    for (const Kernels* kernels : available_kernels()) {
      SessionOptions options = small_options();
      options.kernels = kernels->isa;
      options.prefill_chunk = 100;
      const auto wanted = all_logits(model, options, tokens);
      for (const auto& [chunk, threads] : std::map<std::int64_t, int>{{1, 1}, {2, 8}, {3, 2}, {33, 4}}) {
        options.prefill_chunk = chunk;
        options.threads = threads;
        ASSERT_TRUE(same_bits(all_logits(model, options, tokens), wanted))
            << folder << " " << kernels->isa << " chunk " << chunk << " threads " << threads;
      }
    }
  }
}

TEST(DeltaNet, UpToFourTokensCanBeTakenBack_AsIfTheyHadNeverBeenRead_AndMoreIsRefused) {
  for (const char* folder : kFolders) {
    const Model model(folder);
    const auto tokens = random_tokens(60, model.vocabulary(), 2),
               other = random_tokens(20, model.vocabulary(), 3);
    for (const std::int64_t chunk : {1, 5, 64})
      for (std::size_t back = 1; back <= 4; ++back) {
        SessionOptions options = small_options();
        options.prefill_chunk = chunk;
        Session session(model, options), fresh(model, options);
        session.read(tokens);
        session.apply(Truncate{static_cast<Pos>(tokens.size() - back)});
        fresh.read(std::span(tokens).first(tokens.size() - back));
        expect_same_carried(session, fresh);
        ASSERT_TRUE(same_bits(all_logits(session, other), all_logits(fresh, other)))
            << folder << " chunk " << chunk << " back " << back;
      }
    Session session(model, small_options());
    session.read(tokens);
    expect_refused(
        ErrorCode::invalid_argument,
        "tensor 'layers.0.conv_state' of that position was not kept (a slack of 4 keeps that many)",
        [&] { session.apply(Truncate{55}); });
    EXPECT_EQ(session.position(), 60);
  }
}

TEST(DeltaNet, ASnapshotAndAForkGoOnWithTheSameBits) {
  const testing::TemporaryFolder folder;
  for (const char* source : kFolders) {
    const Model model(source);
    const auto tokens = random_tokens(50, model.vocabulary(), 7),
               other = random_tokens(20, model.vocabulary(), 8);
    Session session(model, small_options()), restored(model, small_options()), fresh(model, small_options());
    session.read(tokens);
    session.save(folder.path("delta.kv"));
    restored.load(folder.path("delta.kv"));
    expect_same_carried(restored, session);
    Session fork = session.fork();
    all_logits(session, random_tokens(9, model.vocabulary(), 9));  // leaves the fork as it is
    restored.apply(Truncate{47});
    restored.read(std::span(tokens).subspan(47));
    fresh.read(tokens);
    const auto wanted = all_logits(fresh, other);
    EXPECT_TRUE(same_bits(all_logits(restored, other), wanted)) << source;
    EXPECT_TRUE(same_bits(all_logits(fork, other), wanted)) << source;
    expect_same_carried(fork, fresh);
  }
}

TEST(DeltaNet, EveryLayerWithOneCarriesTwoTensors_TheOthersKeepRows) {
  const Model model(kFolders[0]);
  Session session(model, small_options());
  const auto empty = session.state().carried();
  ASSERT_EQ(empty.size(), 4u);
  EXPECT_EQ(empty[0].name, "layers.0.conv_state");
  EXPECT_EQ(empty[1].name, "layers.0.recurrent_state");
  EXPECT_EQ(empty[2].name, "layers.2.conv_state");
  EXPECT_EQ(empty[0].shape, (std::vector<std::int64_t>{88, 3}));
  EXPECT_EQ(empty[1].shape, (std::vector<std::int64_t>{2, 12, 20}));
  EXPECT_EQ(empty[1].values, std::vector<float>(480, 0.0f));
  EXPECT_EQ(session.state().shape().layers.size(), 2u);
  // The oldest columns of the convolution are those of the token before.
  session.read(random_tokens(9, model.vocabulary(), 12));
  const auto before = session.state().carried()[0].values;
  session.read(random_tokens(1, model.vocabulary(), 13));
  const auto after = session.state().carried()[0].values;
  for (std::size_t c = 0; c < 88; ++c) EXPECT_EQ(after[3 * c], before[3 * c + 1]);
}

TEST(DeltaNet, TextsInOnePassGetTheBitsOfPassesOfTheirOwn) {
  for (const char* folder : kFolders) {
    const Model model(folder);
    Session first(model, small_options()), second(model, small_options());
    Session alone(model, small_options()), other(model, small_options());
    const auto a = random_tokens(13, model.vocabulary(), 21), b = random_tokens(29, model.vocabulary(), 22);
    Batch batch(model, {.threads = 2});
    const Batch::Item items[] = {{&first, a}, {&second, b}};
    for (const auto& outcome : batch.step(items)) ASSERT_FALSE(outcome.error);
    alone.read(a);
    other.read(b);
    EXPECT_TRUE(same_bits(first.logits(), alone.logits())) << folder;
    EXPECT_TRUE(same_bits(second.logits(), other.logits())) << folder;
    expect_same_carried(first, alone);
    expect_same_carried(second, other);
  }
}

TEST(DeltaNet, RowsAloneCannotBeContinued_AndPositionsCannotBeDropped) {
  const Model model(kFolders[0]);
  Session session(model, small_options());
  const auto tokens = random_tokens(10, model.vocabulary(), 14);
  session.read(tokens);
  const State rows(session.state().shape(), 10, tokens);
  expect_refused(ErrorCode::invalid_argument, "rows alone cannot be continued",
                 [&] { session.restore(rows); });
  expect_refused(ErrorCode::invalid_argument, "tensor 'layers.0.conv_state' holds something of all of them",
                 [&] {
                   session.apply(Drop{{2, 5}});
                 });
  expect_refused(ErrorCode::invalid_argument, "carry more than rows from token to token",
                 [&] { StatefulModel(model, small_options()); });
  EXPECT_EQ(session.position(), 10);
}

}  // namespace
}  // namespace kvtide
