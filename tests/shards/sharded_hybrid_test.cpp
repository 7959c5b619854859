// Shards of a model with convolved queries and keys and routed experts, driven as one, against a session on
// the same weights: bits, drafts, and what taking back must do to what the layers carry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"
#include "kvtide/session.h"
#include "shards/sharded.h"
#include "shards/sharded_generate.h"
#include "tests/engine/logits.h"
#include "tests/model/expect_refused.h"
#include "tests/shards/shard_samples.h"

namespace kvtide {
namespace {

using testing::column_of;
using testing::expect_refused;
using testing::HostCall;
using testing::ShardSample;

const std::string kHybridFolder = KVTIDE_GOLDENS "/folders/zaya-f16";  // one layer slides over 16 positions

class ShardedHybrid : public ::testing::Test {
 protected:
  static const ShardSample& sample() {
    static const ShardSample made{kHybridFolder};
    return made;
  }
  static std::vector<float> logits_of(ShardedModel& model, std::span<const TokenId> tokens,
                                      std::size_t columns) {
    std::vector<float> out;
    for (std::size_t at = 0; at < tokens.size(); at += columns) {
      const auto chunk = tokens.subspan(at, std::min(columns, tokens.size() - at));
      const auto rows = model.read(chunk, static_cast<std::int64_t>(chunk.size()));
      out.insert(out.end(), rows.begin(), rows.end());
    }
    return out;
  }
};

TEST_F(ShardedHybrid, ShardsGiveTheBitsOfASession_ForAnyNumberOfColumns) {
  const Model model(kHybridFolder);
  const auto ids = testing::random_tokens(80, model.vocabulary(), 3);
  const std::vector<float> wanted = testing::all_logits(model, testing::exact_f16(), ids);
  for (const Kernels* kernels : available_kernels())
    for (const std::size_t columns : {1u, 2u, 3u, 4u}) {
      ShardedModel sharded(sample().path(), {.threads = columns == 2 ? 3 : 1, .kernels = kernels->isa});
      EXPECT_EQ(logits_of(sharded, ids, columns), wanted) << kernels->isa << " " << columns;
    }
}

TEST_F(ShardedHybrid, DraftsWriteTheTokensOfPlainDecoding_AndOfASession) {
  const Model model(kHybridFolder);
  std::int64_t accepted = 0, rejected = 0;
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u}) {
    const auto prompt = testing::random_tokens(4 + seed, model.vocabulary(), seed);
    ShardedGenerateOptions options;
    options.max_tokens = 70;
    options.stop_at_end = false;
    ShardedModel plain(sample().path(), {.threads = 1}), drafting(sample().path(), {.threads = 1});
    const ShardedGenerated slow = generate_greedy(plain, prompt, options);
    options.draft = true;
    const ShardedGenerated fast = generate_greedy(drafting, prompt, options);
    ASSERT_EQ(slow.tokens.size(), 70u);
    EXPECT_EQ(fast.tokens, slow.tokens) << seed;
    accepted += fast.accepted;
    rejected += fast.drafted - fast.accepted;

    Session session(model, testing::exact_f16());
    session.read(prompt);
    for (const TokenId token : slow.tokens) {
      const auto logits = session.logits();
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ASSERT_EQ(best, token) << seed;
      session.read({&token, 1});
    }
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(rejected, 20);
}

TEST_F(ShardedHybrid, EightBitExpertsComeNearTheSession) {
  ShardExport how = ShardSample::small();
  how.type = ShardExport::Type::int8;
  how.min_elements = 1;
  const ShardSample eight(kHybridFolder, how);
  int integers = 0;
  for (const TensorEntry& tensor : eight.manifest().find("moe.1")->tensors) {
    if (tensor.name.starts_with("router")) {
      EXPECT_EQ(tensor.dtype, "F32") << tensor.name;
    }
    integers += tensor.dtype == "I8" ? 1 : 0;
  }
  EXPECT_EQ(integers, 3 * 4);
  const Model model(kHybridFolder);
  const auto ids = testing::random_tokens(60, model.vocabulary(), 3);
  const std::vector<float> wanted = testing::all_logits(model, testing::exact_f16(), ids);
  ShardedModel sharded(eight.path(), {.threads = 1});
  const std::vector<float> got = logits_of(sharded, ids, 4);
  double dot = 0.0, a = 0.0, b = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    dot += static_cast<double>(got[i]) * static_cast<double>(wanted[i]);
    a += static_cast<double>(got[i]) * static_cast<double>(got[i]);
    b += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
  }
  EXPECT_GT(dot / std::sqrt(a * b), 0.97);
  EXPECT_NE(got, wanted);
}

TEST_F(ShardedHybrid, UpToFourTokensAreTakenBack_AsIfTheyHadNeverBeenRead) {
  const auto ids = testing::random_tokens(30, 64, 4), other = testing::random_tokens(12, 64, 5);
  for (const std::size_t columns : {1u, 3u, 4u})
    for (std::size_t back = 1; back <= 4; ++back) {
      ShardedModel model(sample().path(), {.threads = 1}), fresh(sample().path(), {.threads = 1});
      logits_of(model, ids, columns);
      model.truncate(static_cast<Pos>(ids.size() - back));
      logits_of(fresh, std::span(ids).first(ids.size() - back), 4);
      EXPECT_EQ(logits_of(model, other, 4), logits_of(fresh, other, 4)) << columns << " back " << back;
    }
  ShardedModel model(sample().path(), {.threads = 1}), fresh(sample().path(), {.threads = 1});
  logits_of(model, ids, 4);
  expect_refused(
      ErrorCode::invalid_argument,
      "cannot truncate the state of attention.0 to 25: it holds 30 positions, and what its conv_state "
      "and prev_value were is kept of the newest 4 only; the smallest that works is 26 (or 0)",
      [&] { model.truncate(25); });
  EXPECT_EQ(model.position(), 30);
  model.truncate(27);
  model.truncate(26);
  model.truncate(0);
  EXPECT_EQ(logits_of(model, ids, 2), logits_of(fresh, ids, 4));
}

class HybridShard : public ShardedHybrid {
 protected:
  ShardFolder folder{sample().path(), {.threads = 1}};
  Shard attention = folder.open("attention.0");
  using Bytes = std::vector<std::byte>;
  static std::vector<Bytes> contents(const ShardState& state) {
    std::vector<Bytes> out;
    for (const auto& tensor : state.tensors()) out.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
    return out;
  }
  // Reads `count` positions, one by one.
  ShardState filled(std::int64_t count) const {
    ShardState state = attention.make_state();
    while (state.position() < count) {
      const HostCall call(folder, state.position(), 1, 1, 100 + static_cast<std::uint64_t>(state.position()));
      attention.predict(call.inputs(), state);
    }
    return state;
  }
};

TEST_F(HybridShard, AStateHasFourTensors_AndBeginsAsZeros) {
  const ShardState state = attention.make_state();
  ASSERT_EQ(state.tensors().size(), 4u);
  EXPECT_EQ(state.tensors()[2].name, "conv_state");
  EXPECT_EQ(state.tensors()[2].shape, (std::vector<std::int64_t>{1, 48, 2}));  // 4 + 2 heads of 8
  EXPECT_EQ(state.tensors()[3].name, "prev_value");
  EXPECT_EQ(state.tensors()[3].shape, (std::vector<std::int64_t>{1, 8}));
  EXPECT_EQ(state.tensors()[3].type, ElementType::f32);
  EXPECT_EQ(state.bytes(), 2 * 2 * 96 * 8 * 2 + (48 * 2 + 8) * 4);
  for (const Bytes& bytes : contents(state))
    for (const std::byte byte : bytes) ASSERT_EQ(byte, std::byte{0});
}

TEST_F(HybridShard, AColumnAndTheStateHaveTheSameBitsAloneAndAmongOthers) {
  for (const std::int64_t before : {0, 1, 62})
    for (std::int64_t columns = 2; columns <= 4; ++columns)
      for (std::int64_t real = 1; real <= columns; ++real) {
        ShardState together = filled(before), alone = filled(before);
        HostCall call(folder, before, columns, real, 7);
        const HostCall sound = call;
        // Columns that are not active may hold anything.
        for (std::int64_t c = 0; c < folder.width(); ++c)
          for (std::int64_t t = real; t < columns; ++t)
            call.x[static_cast<std::size_t>(c * columns + t)] = std::nanf("");
        const std::vector<float> hidden = attention.predict(call.inputs(), together);
        for (std::int64_t t = 0; t < real; ++t)
          ASSERT_EQ(attention.predict(sound.column(folder, before, t).inputs(), alone),
                    column_of(hidden, columns, t))
              << before << " positions, column " << t << " of " << columns;
        EXPECT_TRUE(contents(together) == contents(alone));
      }
}

TEST_F(HybridShard, HiddenSlotsMayHoldAnything) {
  ShardState clean = filled(12), poisoned = filled(12);
  for (const std::size_t tensor : {0u, 1u}) {
    auto* halves = reinterpret_cast<std::uint16_t*>(poisoned.tensors()[tensor].bytes.data());
    for (std::int64_t head = 0; head < 2; ++head)
      for (std::int64_t slot = 12; slot < 96; ++slot)
        for (std::int64_t d = 0; d < 8; ++d) halves[(head * 96 + slot) * 8 + d] = 0x7e00;
  }
  const HostCall call(folder, 12, 4, 3, 5);
  EXPECT_EQ(attention.predict(call.inputs(), poisoned), attention.predict(call.inputs(), clean));
}

TEST_F(HybridShard, ACallThatFailsHasChangedNothing) {
  ShardState state = filled(5);
  const auto before = contents(state);
  HostCall call(folder, 5, 3, 3, 3);
  const HostCall sound = call;
  call.cosine[3] = std::nanf("");  // of the second column
  expect_refused(ErrorCode::numeric, "do not fit f16", [&] { attention.predict(call.inputs(), state); });
  call = sound;
  call.x[2] = std::nanf("");  // in the third column
  expect_refused(ErrorCode::numeric, "the inputs at position 5",
                 [&] { attention.predict(call.inputs(), state); });
  expect_refused(ErrorCode::invalid_argument, "column 0 is written to slot 6",
                 [&] { attention.predict(HostCall(folder, 6, 2, 2, 3).inputs(), state); });
  EXPECT_EQ(state.position(), 5);
  EXPECT_TRUE(contents(state) == before);
  // A visible slot that holds NaN reaches the result, when all else is done.
  auto* first_value = reinterpret_cast<std::uint16_t*>(state.tensors()[1].bytes.data());
  const std::uint16_t kept = *first_value;
  *first_value = 0x7e00;
  expect_refused(ErrorCode::numeric, "the results at position 5",
                 [&] { attention.predict(sound.inputs(), state); });
  *first_value = kept;
  EXPECT_EQ(state.position(), 5);
  EXPECT_TRUE(contents(state) == before);
  ShardState fresh = filled(5);
  EXPECT_EQ(attention.predict(sound.inputs(), state), attention.predict(sound.inputs(), fresh));
}

TEST_F(HybridShard, AMoeShardHandsTheStatesOfItsRouterOn) {
  const HostCall call(folder, 0, 4, 4, 21);
  ASSERT_EQ(folder.router_width(), 8);
  const Shard first = folder.open("moe.0"), second = folder.open("moe.1");
  EXPECT_EQ(first.info().kind, ShardKind::moe);
  // Before layer 0 anything may stand there.
  std::vector<float> router(4 * 8, std::nanf("")), zeros(4 * 8);
  const std::vector<float> hidden = first.predict(call.x, router);
  EXPECT_EQ(first.predict(call.x, zeros), hidden);
  EXPECT_EQ(router, zeros);
  // Column by column the same bits.
  std::vector<float> all = router;
  const std::vector<float> out = second.predict(hidden, all);
  for (std::int64_t t = 0; t < 4; ++t) {
    std::vector<float> one = column_of(router, 4, t);
    EXPECT_EQ(second.predict(column_of(hidden, 4, t), one), column_of(out, 4, t));
    EXPECT_EQ(one, column_of(all, 4, t));
  }
  // What the layer before left counts.
  std::vector<float> nothing(4 * 8);
  second.predict(hidden, nothing);
  EXPECT_NE(nothing, all);
  expect_refused(ErrorCode::invalid_argument, "router has 31 elements; [1, 8, 4, 1] has 32",
                 [&] { second.predict(hidden, std::span(nothing).first(31)); });
  expect_refused(ErrorCode::unsupported, "which needs the router's states",
                 [&] { second.predict(std::span<const float>(hidden)); });
  expect_refused(ErrorCode::unsupported, "of the kind attention, which has no router",
                 [&] { attention.predict(hidden, nothing); });
}

}  // namespace
}  // namespace kvtide
