// recurrent_layers_test.cpp: what short convolutions, gated delta nets and Mamba-2 beside attention must keep of all promises: bits,
// taking back, forks, snapshots, several texts in one pass.
#include <gtest/gtest.h>

#include <map>

#include "kernels/kernels.h"
#include "kvtide/stateful.h"
#include "tests/engine/carried.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::expect_refused;
using testing::expect_same_carried;
using testing::random_tokens;
using testing::same_bits;
using testing::short_session;

class RecurrentLayers : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string folder() { return std::string(KVTIDE_GOLDENS "/folders/") + GetParam(); }
};

TEST_P(RecurrentLayers, LogitsAreTheSameBitsForEveryChunkAndThreadCount_OnEveryKernelTable) {
  const Model model(folder());
  const auto tokens = random_tokens(100, model.vocabulary(), 1);
  for (const Kernels* kernels : available_kernels()) {
    SessionOptions options = short_session();
    options.kernels = kernels->isa;
    options.prefill_chunk = 100;
    const auto wanted = all_logits(model, options, tokens);
    for (const auto& [chunk, threads] : std::map<std::int64_t, int>{{1, 1}, {2, 8}, {3, 2}, {33, 4}}) {
      options.prefill_chunk = chunk;
      options.threads = threads;
      ASSERT_TRUE(same_bits(all_logits(model, options, tokens), wanted))
          << kernels->isa << " chunk " << chunk << " threads " << threads;
    }
  }
}

TEST_P(RecurrentLayers, UpToFourTokensCanBeTakenBack_AsIfTheyHadNeverBeenRead_AndMoreIsRefused) {
  const Model model(folder());
  const auto tokens = random_tokens(60, model.vocabulary(), 2),
             other = random_tokens(20, model.vocabulary(), 3);
  for (const std::int64_t chunk : {1, 5, 64})
    for (std::size_t back = 1; back <= 4; ++back) {
      SessionOptions options = short_session();
      options.prefill_chunk = chunk;
      Session session(model, options), fresh(model, options);
      session.read(tokens);
      session.apply(Truncate{static_cast<Pos>(tokens.size() - back)});
      fresh.read(std::span(tokens).first(tokens.size() - back));
      expect_same_carried(session, fresh);
      ASSERT_TRUE(same_bits(all_logits(session, other), all_logits(fresh, other)))
          << "chunk " << chunk << " back " << back;
    }
  Session session(model, short_session());
  session.read(tokens);
  expect_refused(ErrorCode::invalid_argument,
                 "tensor 'layers.0.conv_state' of that position was not kept (a slack of 4 keeps that many)",
                 [&] { session.apply(Truncate{55}); });
  EXPECT_EQ(session.position(), 60);
}

TEST_P(RecurrentLayers, ASnapshotAndAForkGoOnWithTheSameBits) {
  const testing::TemporaryFolder temporary;
  const Model model(folder());
  const auto tokens = random_tokens(50, model.vocabulary(), 7),
             other = random_tokens(20, model.vocabulary(), 8);
  Session session(model, short_session()), restored(model, short_session()), fresh(model, short_session());
  session.read(tokens);
  session.save(temporary.path("carried.kv"));
  restored.load(temporary.path("carried.kv"));
  expect_same_carried(restored, session);
  Session fork = session.fork();
  all_logits(session, random_tokens(9, model.vocabulary(), 9));  // leaves the fork as it is
  restored.apply(Truncate{47});
  restored.read(std::span(tokens).subspan(47));
  fresh.read(tokens);
  const auto wanted = all_logits(fresh, other);
  EXPECT_TRUE(same_bits(all_logits(restored, other), wanted));
  EXPECT_TRUE(same_bits(all_logits(fork, other), wanted));
  expect_same_carried(fork, fresh);
}

TEST_P(RecurrentLayers, TextsInOnePassGetTheBitsOfPassesOfTheirOwn) {
  testing::expect_passes_of_their_own(Model(folder()));
}

TEST_P(RecurrentLayers, RowsAloneCannotBeContinued_AndPositionsCannotBeDropped) {
  const Model model(folder());
  Session session(model, short_session());
  const auto tokens = random_tokens(10, model.vocabulary(), 14);
  session.read(tokens);
  if (!session.state().shape().layers.empty()) {
    const State rows(session.state().shape(), 10, tokens);
    expect_refused(ErrorCode::invalid_argument, "rows alone cannot be continued",
                   [&] { session.restore(rows); });
  }
  expect_refused(ErrorCode::invalid_argument, "tensor 'layers.0.conv_state' holds something of all of them",
                 [&] {
                   session.apply(Drop{{2, 5}});
                 });
  expect_refused(ErrorCode::invalid_argument, "carry more than rows from token to token",
                 [&] { StatefulModel(model, short_session()); });
  EXPECT_EQ(session.position(), 10);
}

INSTANTIATE_TEST_SUITE_P(Every, RecurrentLayers,
                         ::testing::Values("lfm2-f32", "lfm2-moe-f32", "qwen3-5-f32", "qwen3-5-moe-f32",
                                           "qwen3-next-f32", "granite-hybrid-f32", "mamba2-f32"));

TEST(Lfm2, LayersWithConvolutionsCarryATensor_TheOthersKeepRows) {
  const Model model(KVTIDE_GOLDENS "/folders/lfm2-f32");
  Session session(model, short_session());
  const auto empty = session.state().carried();
  ASSERT_EQ(empty.size(), 2u);
  EXPECT_EQ(empty[0].name, "layers.0.conv_state");
  EXPECT_EQ(empty[1].name, "layers.2.conv_state");
  EXPECT_EQ(empty[1].shape, (std::vector<std::int64_t>{32, 2}));
  EXPECT_EQ(empty[1].values, std::vector<float>(64, 0.0f));
  EXPECT_EQ(session.state().shape().layers.size(), 1u);
  // The older of two columns is the newer one of the token before.
  session.read(random_tokens(9, model.vocabulary(), 12));
  const auto before = session.state().carried()[0].values;
  session.read(random_tokens(1, model.vocabulary(), 13));
  const auto after = session.state().carried()[0].values;
  for (std::size_t c = 0; c < 32; ++c) EXPECT_EQ(after[2 * c], before[2 * c + 1]);
}

TEST(DeltaNet, EveryLayerWithOneCarriesTwoTensors_TheOthersKeepRows) {
  const Model model(KVTIDE_GOLDENS "/folders/qwen3-5-f32");
  Session session(model, short_session());
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

TEST(Mamba2, EveryLayerCarriesTwoTensors_AndNoneKeepsRows) {
  const Model model(KVTIDE_GOLDENS "/folders/mamba2-f32");
  Session session(model, short_session());
  const auto empty = session.state().carried();
  ASSERT_EQ(empty.size(), 4u);
  EXPECT_EQ(empty[2].name, "layers.1.conv_state");
  EXPECT_EQ(empty[3].name, "layers.1.recurrent_state");
  EXPECT_EQ(empty[2].shape, (std::vector<std::int64_t>{112, 3}));
  EXPECT_EQ(empty[3].shape, (std::vector<std::int64_t>{4, 12, 16}));
  EXPECT_TRUE(session.state().shape().layers.empty());
  session.read(random_tokens(9, model.vocabulary(), 12));
  EXPECT_EQ(session.position(), 9);
}

}  // namespace
}  // namespace kvtide
