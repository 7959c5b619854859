// Random walks of a KvState: steps opened, written, dropped and committed, and the state cleared, against a
// plain record of what every position was given.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "state/state.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::Rng;

KvSpec random_spec(Rng& rng) {
  KvSpec spec;
  const std::int64_t layers = 1 + rng.below(3);
  for (std::int64_t i = 0; i < layers; ++i) {
    LayerSpec layer{static_cast<int>(1 + rng.below(3)), static_cast<int>(1 + rng.below(40)), std::nullopt};
    if (rng.below(3) != 0) layer.window = 1 + rng.below(150);
    spec.layers.push_back(layer);
  }
  spec.key_type = rng.below(2) == 0 ? DType::f16 : DType::f32;
  spec.value_type = rng.below(2) == 0 ? DType::f16 : DType::f32;
  spec.capacity = 1 + rng.below(1000);
  spec.max_step = 1 + rng.below(100);
  return spec;
}

float number(DType dtype, const std::byte* at) {
  float value = 0.0f;
  std::uint16_t half = 0;
  std::memcpy(dtype == DType::f16 ? static_cast<void*>(&half) : &value, at, dtype == DType::f16 ? 2 : 4);
  return dtype == DType::f16 ? f16_to_f32(half) : value;
}

// What was written for (layer, head, position): whole numbers below 2,048, which f16 holds exactly.
class Record {
 public:
  float& at(int layer, int head, Pos pos) {
    auto& row = rows_[static_cast<std::size_t>(layer * 3 + head)];
    if (row.size() <= static_cast<std::size_t>(pos)) row.resize(static_cast<std::size_t>(pos) + 1);
    return row[static_cast<std::size_t>(pos)];
  }

 private:
  std::vector<float> rows_[9];
};

void walk(std::uint64_t seed) {
  Rng rng(seed);
  const KvSpec spec = random_spec(rng);
  KvState state(spec);
  Record record;
  for (int turn = 0; turn < 60; ++turn) {
    if (rng.below(25) == 0) state.clear();
    const std::int64_t tokens = 1 + rng.below(spec.max_step + 1);
    if (tokens > spec.max_step || tokens > spec.capacity - state.position()) {
      const Pos before = state.position();
      EXPECT_THROW(state.begin(tokens), Error);
      ASSERT_EQ(state.position(), before);
      if (state.position() == spec.capacity) state.clear();
      continue;
    }
    KvState::Step step = state.begin(tokens);
    for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
      const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
      for (int head = 0; head < l.kv_heads; ++head) {
        for (std::int64_t t = 0; t < tokens; ++t) {
          const auto mark = static_cast<float>(rng.below(1000));
          record.at(layer, head, step.first() + t) = mark;
          const std::vector<float> key(static_cast<std::size_t>(l.head_dim), mark),
              value(key.size(), -mark - 1.0f);
          step.write(best_kernels().elementwise, layer, head, t, key.data(), value.data());
        }
        Pos next = l.window ? std::max<Pos>(0, step.first() - *l.window + 1) : 0;
        const auto heads = step.spans(layer);
        for (const Span& span : heads[static_cast<std::size_t>(head)]) {
          ASSERT_EQ(span.first, next) << "seed " << seed;
          for (std::int64_t row = 0; row < span.rows; ++row, ++next)
            for (const int d : {0, l.head_dim - 1}) {
              const float mark = record.at(layer, head, next);
              const std::int64_t key_at = row * span.key_stride + dtype_bytes(span.key_type, d);
              const std::int64_t value_at = row * span.value_stride + dtype_bytes(span.value_type, d);
              if (number(span.key_type, span.keys + key_at) != mark ||
                  number(span.value_type, span.values + value_at) != -mark - 1.0f)
                FAIL() << "seed " << seed << ": position " << next << " of layer " << layer
                       << " holds another row";
            }
        }
        ASSERT_EQ(next, step.first() + tokens) << "seed " << seed;
      }
    }
    if (rng.below(4) != 0) step.commit();  // else it is dropped
  }
}

TEST(StateWalk, GivesBackWhatWasWritten_WhateverWasDroppedBefore) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    walk(seed);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace kvtide
