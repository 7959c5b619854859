// One shard at a time, as a host sees it: columns and their bits, masks, states, and what never matters.
#include "kvtide/shard.h"
#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/half.h"
#include "tests/model/expect_refused.h"
#include "tests/shards/shard_samples.h"

namespace kvtide {
namespace {

using testing::column_of;
using testing::expect_refused;
using testing::HostCall;
using testing::ShardSample;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ShardTest : public ::testing::Test {
 protected:
  static const ShardSample& sample() {
    static const ShardSample made{testing::SampleModel{.head_dim = 16}};
    return made;
  }
  ShardFolder folder{sample().path(), {.threads = 1}};
  Shard attention = folder.open("attention.0");

  // Reads `count` positions, one by one.
  void fill(ShardState& state, std::int64_t count, const Shard& shard) const {
    while (state.position() < count) {
      const HostCall call(folder, state.position(), 1, 1, 100 + static_cast<std::uint64_t>(state.position()));
      shard.predict(call.inputs(), state);
    }
  }
  ShardState filled(std::int64_t count) const {
    ShardState state = attention.make_state();
    fill(state, count, attention);
    return state;
  }
  static std::span<std::uint16_t> halves(const ShardState& state, std::size_t tensor) {
    const auto bytes = state.tensors()[tensor].bytes;
    return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / 2};
  }
  static std::vector<std::uint16_t> all_halves(const ShardState& state) {
    std::vector<std::uint16_t> out;
    for (const std::size_t i : {0u, 1u})
      out.insert(out.end(), halves(state, i).begin(), halves(state, i).end());
    return out;
  }
};

TEST_F(ShardTest, AStateHasTheTensorsOfTheContract_AndBeginsAsZeros) {
  const ShardState state = attention.make_state();
  ASSERT_EQ(state.tensors().size(), 2u);
  EXPECT_EQ(state.tensors()[0].name, "k_state");
  EXPECT_EQ(state.tensors()[1].name, "v_state");
  for (const auto& tensor : state.tensors()) {
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{1, 2, 96, 16}));
    EXPECT_EQ(tensor.type, ElementType::f16);
    EXPECT_EQ(tensor.bytes.size(), 2u * 96 * 16 * 2);
  }
  EXPECT_EQ(state.bytes(), 2 * 2 * 96 * 16 * 2);
  EXPECT_EQ(state.position(), 0);
  for (const std::uint16_t half : all_halves(state)) ASSERT_EQ(half, 0);
}

TEST_F(ShardTest, AColumnHasTheSameBitsAloneAndAmongOthers) {
  // Behind 0, 1 and 62 positions: the last chunk crosses a tile of 64.
  for (const std::int64_t before : {0, 1, 62})
    for (std::int64_t columns = 2; columns <= 4; ++columns)
      for (std::int64_t real = 1; real <= columns; ++real)
        for (const std::optional<std::int64_t> size :
             {std::optional<std::int64_t>(), std::optional<std::int64_t>(5)}) {
          ShardState together = filled(before), alone = filled(before);
          const HostCall call(folder, before, columns, real, 7, size);
          const std::vector<float> hidden = attention.predict(call.inputs(), together);
          ASSERT_EQ(hidden.size(), static_cast<std::size_t>(folder.width() * columns));
          for (std::int64_t t = 0; t < real; ++t)
            ASSERT_EQ(attention.predict(call.column(folder, before, t, size).inputs(), alone),
                      column_of(hidden, columns, t))
                << before << " positions, column " << t << " of " << columns;
          for (std::int64_t t = real; t < columns; ++t)
            ASSERT_EQ(column_of(hidden, columns, t),
                      std::vector<float>(static_cast<std::size_t>(folder.width())));
          EXPECT_EQ(together.position(), before + real);
          EXPECT_EQ(all_halves(together), all_halves(alone));
        }
}

TEST_F(ShardTest, HiddenSlotsMayHoldAnything) {
  // What came before position 9 is hidden by the attention size, what comes behind was never visible.
  for (const std::uint16_t poison :
       {std::uint16_t{0x7e00}, std::uint16_t{0x7c00}, std::uint16_t{0xfc00}, std::uint16_t{0x7bff}}) {
    ShardState clean = filled(12), poisoned = filled(12);
    const HostCall call(folder, 12, 4, 3, 5, 4);
    for (const std::size_t tensor : {0u, 1u})
      for (std::int64_t head = 0; head < 2; ++head)
        for (std::int64_t slot = 0; slot < 96; ++slot)
          if (slot < 9 || slot >= 12)
            for (std::int64_t d = 0; d < 16; ++d)
              halves(poisoned, tensor)[static_cast<std::size_t>((head * 96 + slot) * 16 + d)] = poison;
    EXPECT_EQ(attention.predict(call.inputs(), poisoned), attention.predict(call.inputs(), clean));
    // The written rows are those of the clean state, too.
    for (const std::size_t tensor : {0u, 1u})
      for (std::int64_t slot = 12; slot < 15; ++slot)
        EXPECT_EQ(std::memcmp(halves(poisoned, tensor).data() + slot * 16,
                              halves(clean, tensor).data() + slot * 16, 32),
                  0);
  }
}

TEST_F(ShardTest, ColumnsThatAreNotActiveMayHoldAnything) {
  ShardState clean = filled(3), poisoned = filled(3);
  HostCall call(folder, 3, 4, 2, 9);
  const std::vector<float> wanted = attention.predict(call.inputs(), clean);
  for (std::int64_t c = 0; c < folder.width(); ++c) call.x[static_cast<std::size_t>(c * 4 + 2)] = kNan;
  for (std::size_t i = 2 * static_cast<std::size_t>(folder.rope_half()); i < call.cosine.size(); ++i)
    call.cosine[i] = kNan;
  EXPECT_EQ(attention.predict(call.inputs(), poisoned), wanted);
  EXPECT_EQ(all_halves(poisoned), all_halves(clean));
}

TEST_F(ShardTest, TruncatingTakesADraftBack) {
  ShardState straight = filled(10), drafted = filled(10);
  const HostCall wrong(folder, 10, 4, 4, 77), right(folder, 10, 2, 2, 78);
  attention.predict(wrong.inputs(), drafted);
  EXPECT_EQ(drafted.position(), 14);
  drafted.truncate(10);
  EXPECT_EQ(attention.predict(right.inputs(), drafted), attention.predict(right.inputs(), straight));
  EXPECT_EQ(drafted.position(), 12);
  expect_refused(ErrorCode::invalid_argument, "cannot truncate the state of attention.0 to 13: it holds 12",
                 [&] { drafted.truncate(13); });
  expect_refused(ErrorCode::invalid_argument, "to -1", [&] { drafted.truncate(-1); });
  EXPECT_EQ(drafted.position(), 12);
}

TEST_F(ShardTest, AStateOfAnotherShardIsRefused) {
  const Shard other = folder.open("attention.1");
  ShardState state = filled(2);
  const HostCall call(folder, 2, 1, 1, 3);
  expect_refused(ErrorCode::invalid_argument,
                 "the state belongs to shard attention.0; shard attention.1 needs one of its own",
                 [&] { other.predict(call.inputs(), state); });
  const ShardSample same_name{testing::SampleModel{.head_dim = 16, .seed = 2}};
  const Shard stranger = Shard::open(same_name.path(), "attention.0", {.threads = 1});
  expect_refused(ErrorCode::invalid_argument, "shard attention.0 of another folder",
                 [&] { stranger.predict(call.inputs(), state); });
  EXPECT_EQ(state.position(), 2);
  // The same attention shard in a model with another embedding: its rows were others.
  ShardExport coarser = ShardSample::small();
  coarser.type = ShardExport::Type::int8;
  coarser.keep_f16 = {"query", "key", "value", "output"};
  const ShardSample other_below(testing::SampleModel{.head_dim = 16}, coarser);
  ASSERT_EQ(other_below.manifest().find("attention.0")->file.crc32c,
            sample().manifest().find("attention.0")->file.crc32c);
  expect_refused(ErrorCode::invalid_argument, "shard attention.0 of another folder",
                 [&] { Shard::open(other_below.path(), "attention.0").predict(call.inputs(), state); });
  const Shard again = Shard::open(sample().path(), "attention.0", {.threads = 1});
  again.predict(call.inputs(), state);
  EXPECT_EQ(state.position(), 3);
}

TEST_F(ShardTest, ACallThatFailsHasChangedNothing) {
  ShardState state = filled(5);
  const std::vector<std::uint16_t> before = all_halves(state);
  const auto refused = [&](ErrorCode code, const std::string& says, const HostCall& call) {
    expect_refused(code, says, [&] { attention.predict(call.inputs(), state); });
    EXPECT_EQ(state.position(), 5);
    EXPECT_EQ(all_halves(state), before);
  };
  HostCall call(folder, 5, 2, 2, 3);
  const HostCall sound = call;
  call.x[1] = kNan;
  refused(ErrorCode::numeric, "the inputs at position 5", call);
  call = sound;
  call.cosine[3] = kNan;
  refused(ErrorCode::numeric, "do not fit f16", call);
  call = sound;
  for (std::size_t i = 0; i < call.sine.size(); ++i) call.sine[i] = call.cosine[i] = 1e6f;
  call.other_positions = true;
  refused(ErrorCode::numeric, "do not fit f16", call);
  refused(ErrorCode::invalid_argument, "column 0 is written to slot 6", HostCall(folder, 6, 2, 2, 3));
  call = sound;
  call.sine.pop_back();
  refused(ErrorCode::invalid_argument, "the rope tables have 16 and 15 elements; [2, 8] has 16", call);
  call = sound;
  call.x.pop_back();
  refused(ErrorCode::invalid_argument, "x has 127 elements; it must be [1, 64, T, 1] with T from 1 to 4",
          call);
  refused(ErrorCode::invalid_argument, "x has 320 elements", HostCall(folder, 5, 5, 5, 3));
  // A visible slot that holds NaN reaches the result.
  halves(state, 1)[0] = 0x7e00;
  expect_refused(ErrorCode::numeric, "the results at position 5",
                 [&] { attention.predict(sound.inputs(), state); });
  EXPECT_EQ(state.position(), 5);
}

TEST_F(ShardTest, AMaskThatShowsNothingOfTheStateIsRefusedUnlessItIsMeant) {
  ShardState state = filled(6);
  HostCall alone(folder, 6, 1, 1, 3, 1);  // a decode mask of length 1
  expect_refused(
      ErrorCode::invalid_argument,
      "shard attention.0: column 0 sees nothing but its own slot 6, though slots 0 to 5 are in use",
      [&] { attention.predict(alone.inputs(), state); });
  HostCall call(folder, 6, 3, 3, 3);  // as long as the call
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t s = 0; s < 6; ++s) call.attention[t * 96 + s] = -1e4f;
  expect_refused(ErrorCode::invalid_argument, "a mask as long as the call hides the past",
                 [&] { attention.predict(call.inputs(), state); });
  EXPECT_EQ(state.position(), 6);
  HostCall prompt(folder, 0, 3, 3, 3, 1);  // the diagonal of a prompt
  ShardState empty = attention.make_state();
  expect_refused(ErrorCode::invalid_argument, "column 1 sees nothing but its own slot 1, though slot 0 is",
                 [&] { attention.predict(prompt.inputs(), empty); });
  alone.hides_past = true;
  attention.predict(alone.inputs(), state);
  EXPECT_EQ(state.position(), 7);
  attention.predict(HostCall(folder, 7, 3, 3, 3, 2).inputs(), state);  // two slots are a choice
  EXPECT_EQ(state.position(), 10);
}

TEST_F(ShardTest, RopeRowsOfAnotherPositionAreRefusedUnlessTheyAreMeant) {
  ShardState state = filled(6);
  HostCall call(folder, 6, 2, 2, 3);
  const auto rows_of = [&](Pos first) { folder.rope_rows(0, first, 2, call.cosine, call.sine); };
  for (const Pos other : {0, 5, 7}) {
    rows_of(other);
    expect_refused(
        ErrorCode::invalid_argument,
        "column 0 is written to slot 6, but its rows of rope_cos and rope_sin are those of position " +
            std::to_string(other),
        [&] { attention.predict(call.inputs(), state); });
  }
  rows_of(6);
  for (float& value : call.sine) value = -value;
  expect_refused(ErrorCode::invalid_argument, "are no row of rope table 0",
                 [&] { attention.predict(call.inputs(), state); });
  EXPECT_EQ(state.position(), 6);
  call.other_positions = true;
  attention.predict(call.inputs(), state);
  call = HostCall(folder, 8, 2, 2, 3);
  for (auto* table : {&call.cosine, &call.sine})  // a host whose tables are f16
    for (float& value : *table) value = f16_to_f32(f32_to_f16(value));
  attention.predict(call.inputs(), state);
  EXPECT_EQ(state.position(), 10);
}

TEST_F(ShardTest, WhatStatesTakeIsKnownBeforeOneIsMade) {
  EXPECT_EQ(folder.state_bytes(), folder.layers() * attention.make_state().bytes());
  EXPECT_EQ(folder.state_bytes(4096), folder.layers() * 2 * 2 * 4096 * 16 * 2);
}

TEST_F(ShardTest, AFullStateTakesNoMore) {
  ShardState state = filled(95);
  HostCall call(folder, 95, 1, 1, 3);
  attention.predict(call.inputs(), state);
  EXPECT_EQ(state.position(), 96);
  call.write.assign(call.write.size(), 0.0f);
  expect_refused(ErrorCode::context_full, "all 96 slots are in use",
                 [&] { attention.predict(call.inputs(), state); });
}

TEST_F(ShardTest, FeedForwardAndHeadsGiveEveryColumnTheBitsItHasAlone) {
  const HostCall call(folder, 0, 4, 4, 21);
  for (const char* name : {"mlp.1", "head.0"}) {
    const Shard shard = folder.open(name);
    const std::vector<float> all = shard.predict(std::span<const float>(call.x));
    for (std::int64_t t = 0; t < 4; ++t)
      EXPECT_EQ(shard.predict(std::span<const float>(call.column(folder, 0, t).x)), column_of(all, 4, t))
          << name;
  }
}

TEST_F(ShardTest, EachKindOfShardSaysWhatItTakes) {
  ShardState state = attention.make_state();
  const HostCall call(folder, 0, 1, 1, 3);
  const TokenId id = 5;
  const Shard mlp = folder.open("mlp.0"), embedding = folder.open("embedding"), head = folder.open("head.0");
  expect_refused(ErrorCode::unsupported, "mlp.0 is of the kind mlp, which keeps no state",
                 [&] { mlp.make_state(); });
  expect_refused(ErrorCode::unsupported, "which takes no state", [&] { head.predict(call.inputs(), state); });
  expect_refused(ErrorCode::unsupported, "which needs masks and a state",
                 [&] { attention.predict(std::span<const float>(call.x)); });
  expect_refused(ErrorCode::unsupported, "which takes token ids",
                 [&] { embedding.predict(std::span<const float>(call.x)); });
  expect_refused(ErrorCode::unsupported, "which takes no token ids", [&] { mlp.predict({&id, 1}, 0); });
  const std::vector<TokenId> bad = {3, 64}, many(5, 1);
  expect_refused(ErrorCode::invalid_argument, "token id 64 is outside the vocabulary of 64",
                 [&] { embedding.predict(bad, 0); });
  expect_refused(ErrorCode::invalid_argument, "a call takes 1 to 4 tokens, not 5",
                 [&] { embedding.predict(many, 0); });
  expect_refused(ErrorCode::invalid_argument, "there is no shard 'attention.9'",
                 [&] { folder.open("attention.9"); });
  EXPECT_EQ(embedding.predict({&id, 1}, 0).size(), 64u);
  EXPECT_GT(embedding.weights_bytes(), 0);
}

TEST_F(ShardTest, TheEmbeddingIsTheRowOfTheToken) {
  const testing::TemporaryFile model = testing::sample_file({.head_dim = 16, .types = {DType::f16}});
  const ShardSample shards(model.path());
  const GgufFile file(model.path());
  const GgufTensor* tensor = file.find_tensor("token_embd.weight");
  ASSERT_NE(tensor, nullptr);
  const std::vector<TokenId> ids = {63, 0, 17};
  const std::vector<float> x = Shard::open(shards.path(), "embedding", {.threads = 1}).predict(ids, 0);
  for (std::size_t t = 0; t < ids.size(); ++t)
    for (std::size_t c = 0; c < 64; ++c) {
      std::uint16_t half = 0;
      std::memcpy(&half, tensor->data.data() + (static_cast<std::size_t>(ids[t]) * 64 + c) * 2, 2);
      ASSERT_EQ(x[c * 3 + t], f16_to_f32(half)) << "token " << ids[t] << ", channel " << c;
    }
}

}  // namespace
}  // namespace kvtide
