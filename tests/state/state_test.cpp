#include "state/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "tests/base/resident.h"

namespace kvtide {
namespace {

KvSpec spec_of(std::vector<LayerSpec> layers, std::int64_t capacity, std::int64_t max_step,
               DType dtype = DType::f32) {
  KvSpec spec;
  spec.layers = std::move(layers);
  spec.key_type = spec.value_type = dtype;
  spec.capacity = capacity;
  spec.max_step = max_step;
  return spec;
}

// The key and value that position `pos` gets, telling layer, head and element apart. Small enough to be exact
// in f16.
float key_number(int layer, int head, Pos pos, int element) {
  return static_cast<float>((pos * 7 + layer * 31 + head * 13 + element * 3) % 1021);
}
float value_number(int layer, int head, Pos pos, int element) {
  return -key_number(layer, head, pos, element) - 1.0f;
}

void fill(KvState::Step& step, const KvSpec& spec) {
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
    std::vector<float> key(static_cast<std::size_t>(l.head_dim)), value(key.size());
    for (int head = 0; head < l.kv_heads; ++head)
      for (std::int64_t t = 0; t < step.tokens(); ++t) {
        for (int d = 0; d < l.head_dim; ++d) {
          key[static_cast<std::size_t>(d)] = key_number(layer, head, step.first() + t, d);
          value[static_cast<std::size_t>(d)] = value_number(layer, head, step.first() + t, d);
        }
        step.write(best_kernels().elementwise, layer, head, t, key.data(), value.data());
      }
  }
}

float number_at(DType dtype, const std::byte* row, int element) {
  if (dtype == DType::f16) {
    std::uint16_t half = 0;
    std::memcpy(&half, row + 2 * element, 2);
    return f16_to_f32(half);
  }
  float value = 0.0f;
  std::memcpy(&value, row + 4 * element, 4);
  return value;
}

// Every span row holds what its position was given, and the positions are those that the step's queries see.
void expect_rows(KvState::Step& step, const KvSpec& spec) {
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
    const auto spans = step.spans(layer);
    ASSERT_EQ(spans.size(), static_cast<std::size_t>(l.kv_heads));
    for (int head = 0; head < l.kv_heads; ++head) {
      Pos next = l.window ? std::max<Pos>(0, step.first() - *l.window + 1) : 0;
      for (const Span& span : spans[static_cast<std::size_t>(head)]) {
        ASSERT_TRUE(span.first.has_value());
        ASSERT_EQ(*span.first, next) << "layer " << layer;
        ASSERT_EQ(span.log_mass, nullptr);
        ASSERT_GE(span.rows, 1);
        for (std::int64_t row = 0; row < span.rows; ++row)
          for (int d = 0; d < l.head_dim; ++d) {
            ASSERT_EQ(number_at(span.key_type, span.keys + row * span.key_stride, d),
                      key_number(layer, head, next + row, d))
                << "layer " << layer << " head " << head << " position " << next + row;
            ASSERT_EQ(number_at(span.value_type, span.values + row * span.value_stride, d),
                      value_number(layer, head, next + row, d))
                << "layer " << layer << " head " << head << " position " << next + row;
          }
        next += span.rows;
      }
      ASSERT_EQ(next, step.first() + step.tokens()) << "layer " << layer;
    }
  }
}

TEST(KvState, GivesBackEveryVisibleRow_ThroughFullAndWindowedLayers) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const std::int64_t step : {1, 5, 50}) {
      const KvSpec spec = spec_of({{2, 8, std::nullopt}, {1, 20, 30}, {2, 4, 1}}, 500, 50, dtype);
      KvState state(spec);
      while (state.position() + step <= 500) {
        KvState::Step open = state.begin(step);
        EXPECT_EQ(open.first(), state.position());
        EXPECT_EQ(open.tokens(), step);
        fill(open, spec);
        expect_rows(open, spec);
        const Pos before = state.position();
        open.commit();
        ASSERT_EQ(state.position(), before + step);
      }
    }
}

TEST(KvState, IsAsItWas_WhenAStepIsDropped) {
  const KvSpec spec = spec_of({{1, 8, std::nullopt}, {1, 8, 40}}, 400, 64);
  KvState state(spec);
  for (int turn = 0; turn < 20; ++turn) {
    const Pos before = state.position();
    {
      KvState::Step dropped = state.begin(64 - turn);
      // Numbers that no position is ever given.
      const std::vector<float> noise(8, 5e8f);
      for (int layer = 0; layer < 2; ++layer)
        for (std::int64_t t = 0; t < dropped.tokens(); ++t)
          dropped.write(best_kernels().elementwise, layer, 0, t, noise.data(), noise.data());
    }
    EXPECT_EQ(state.position(), before);
    KvState::Step step = state.begin(1 + turn % 13);
    fill(step, spec);
    expect_rows(step, spec);
    step.commit();
  }
}

TEST(KvState, ReadsRowsThatWereNeverWrittenAsZeros) {
  KvState state(spec_of({{1, 16, std::nullopt}}, 64, 8, DType::f16));
  KvState::Step step = state.begin(8);
  const auto spans = step.spans(0);
  for (const Span& span : spans[0])
    for (std::int64_t row = 0; row < span.rows; ++row)
      for (int d = 0; d < 16; ++d)
        ASSERT_EQ(number_at(DType::f16, span.keys + row * span.key_stride, d), 0.0f);
}

void append(KvState& state, const KvSpec& spec, std::int64_t tokens) {
  while (tokens > 0) {
    KvState::Step step = state.begin(std::min(tokens, spec.max_step));
    fill(step, spec);
    tokens -= step.tokens();
    step.commit();
  }
}

TEST(KvState, HoldsThePagesOfTheTokensItHas_NotOfItsCapacity) {
  // A layer, head and kind of 64 f16 elements: 128 bytes per token, 32 tokens per page.
  const KvSpec spec = spec_of({{2, 64, std::nullopt}, {1, 64, 100}}, 32768, 16, DType::f16);
  KvState state(spec);
  EXPECT_EQ(state.held_bytes(), 0);
  append(state, spec, 1);
  EXPECT_EQ(state.held_bytes(), (2 + 1) * 2 * 4096);
  append(state, spec, 31);
  EXPECT_EQ(state.held_bytes(), (2 + 1) * 2 * 4096);
  append(state, spec, 1);
  EXPECT_EQ(state.held_bytes(), (2 + 1) * 2 * 2 * 4096);
  append(state, spec, 967);
  // 1,000 tokens: 32 pages each. The window keeps whole tiles of 64: from position 832 on, 6 pages.
  EXPECT_EQ(state.held_bytes(), 2 * 2 * 32 * 4096 + 2 * 6 * 4096);
}

TEST(KvState, TakesMemoryFromTheSystemOnlyForTheTokensItHolds) {
  const KvSpec spec = spec_of({{4, 128, std::nullopt}}, 32768, 16);
  KvState state(spec);
  append(state, spec, 10);
  const auto resident = [&] {  // of the layer's memory: 8 regions of 2^18 rows and a page
    return resident_bytes(state.begin(1).spans(0)[0][0].keys, 8 * ((std::size_t{1} << 18) * 512 + 4096));
  };
  if (!resident()) GTEST_SKIP() << "this system does not tell which pages are in memory";
  EXPECT_EQ(static_cast<std::int64_t>(*resident()), state.held_bytes());
  append(state, spec, 3000);
  EXPECT_EQ(static_cast<std::int64_t>(*resident()), state.held_bytes());
  EXPECT_EQ(state.held_bytes(), 4 * 2 * ((3010 * 512 + 4095) / 4096 * 4096));
}

// What every layer no longer needed went when a step began and came back layer by layer: the resident set of
// a full window moved by a whole step.
TEST(KvState, AFullWindowTakesTheSameMemoryAtEveryMomentOfAStep) {
  constexpr int kLayers = 6;
  constexpr std::size_t kStep = 128, kRowBytes = 2 * 64 * sizeof(float);  // key and value
  KvSpec spec = spec_of(std::vector<LayerSpec>(kLayers, {1, 64, std::nullopt}), 1024, kStep);
  spec.key_type = spec.value_type = DType::f32;
  spec.rolling = Rolling{4, 512};
  KvState state(spec);
  append(state, spec, 1024);
  std::vector<const std::byte*> memory;
  {
    KvState::Step step = state.begin(1);
    for (int layer = 0; layer < kLayers; ++layer) memory.push_back(step.spans(layer)[0][0].keys);
  }
  const auto resident = [&]() -> std::optional<std::size_t> {  // 2 regions of 2^18 rows and a page each
    std::size_t sum = 0;
    for (const std::byte* start : memory) {
      const auto bytes = resident_bytes(start, 2 * ((std::size_t{1} << 18) * 64 * sizeof(float) + 4096));
      if (!bytes) return std::nullopt;
      sum += *bytes;
    }
    return sum;
  };
  if (!resident()) GTEST_SKIP() << "this system does not tell which pages are in memory";
  append(state, spec, kStep);
  const std::size_t full = *resident();
  const auto& kernels = best_kernels().elementwise;
  const std::vector<float> row(64, 1.0f);
  for (int steps = 0; steps < 3; ++steps) {
    KvState::Step step = state.begin(kStep);
    for (int layer = 0; layer < kLayers; ++layer) {
      step.spans(layer);
      for (std::size_t t = 0; t < kStep; ++t) step.write(kernels, layer, 0, t, row.data(), row.data());
      EXPECT_LE(*resident(), full) << "layer " << layer;
      EXPECT_GE(*resident() + kStep * kRowBytes, full) << "layer " << layer;
    }
    step.commit();
    EXPECT_EQ(*resident(), full);
  }
}

TEST(KvState, GivesItsMemoryBackWhenItForgets_AndCanBeUsedAgain) {
  const KvSpec spec = spec_of({{2, 64, std::nullopt}, {1, 64, 100}}, 8192, 64);
  KvState state(spec);
  append(state, spec, 4000);
  const std::byte* memory = state.begin(1).spans(0)[0][0].keys;
  const auto resident = [&] {  // of the first layer: 4 regions of 2^18 rows and a page
    return resident_bytes(memory, 4 * ((std::size_t{1} << 18) * 256 + 4096));
  };
  if (!resident()) GTEST_SKIP() << "this system does not tell which pages are in memory";
  EXPECT_GE(*resident(), std::size_t{2 * 2 * 4000 * 256});
  state.clear();
  EXPECT_EQ(state.position(), 0);
  EXPECT_EQ(state.held_bytes(), 0);
  EXPECT_EQ(*resident(), 0u);
  append(state, spec, 130);
  KvState::Step step = state.begin(20);
  fill(step, spec);
  expect_rows(step, spec);
}

TEST(KvState, SaysWhatMoreTokensCost) {
  KvSpec spec = spec_of({{2, 64, std::nullopt}, {1, 64, 100}, {3, 32, std::nullopt}}, 10000, 28, DType::f16);
  EXPECT_EQ(row_bytes(spec.layers[0], DType::f16, DType::f16), 2 * (64 + 64) * 2);
  EXPECT_EQ(bytes_for_tokens(spec, 10), 10 * (512 + 384) + 10 * 256);
  EXPECT_EQ(bytes_for_tokens(spec, 5000), 5000 * (512 + 384) + 128 * 256);  // 100 + 28 rows of the window
  EXPECT_EQ(kept_bytes(spec, 5000), 5000 * (512 + 384) + 100 * 256);
  EXPECT_EQ(kept_bytes(spec, 10), bytes_for_tokens(spec, 10));
  EXPECT_EQ(row_bytes(spec.layers[2], DType::f32, DType::q8_0), 3 * (32 * 4 + 34));
}

TEST(KvState, MovesWithItsRows) {
  const KvSpec spec = spec_of({{1, 8, 40}}, 400, 16);
  KvState first(spec);
  append(first, spec, 90);
  KvState second = std::move(first);
  EXPECT_EQ(second.position(), 90);
  KvState::Step step = second.begin(3);
  fill(step, spec);
  expect_rows(step, spec);
}

void expect_refused(const std::function<void()>& call, ErrorCode code, const std::string& says) {
  try {
    call();
    ADD_FAILURE() << "accepted, instead of saying: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_NE(error.message().find(says), std::string::npos) << error.message() << "\nshould say: " << says;
  }
}

TEST(KvState, RefusesAStepThatDoesNotFit_AndTellsBothNumbers) {
  const KvSpec spec = spec_of({{1, 8, std::nullopt}}, 20, 16);
  KvState state(spec);
  append(state, spec, 15);
  expect_refused([&] { state.begin(6); }, ErrorCode::context_full,
                 "15 of 20 rows are used and 6 more do not fit");
  EXPECT_EQ(state.position(), 15);
  append(state, spec, 5);
  expect_refused([&] { state.begin(1); }, ErrorCode::context_full, "20 of 20 rows are used");
}

TEST(KvState, RefusesAStepOutsideItsRange) {
  KvState state(spec_of({{1, 8, std::nullopt}}, 20, 16));
  for (const std::int64_t tokens :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{17}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()})
    expect_refused([&] { state.begin(tokens); }, ErrorCode::invalid_argument,
                   "a step takes 1 to 16 tokens, not ");
}

TEST(KvState, RefusesASpecThatMakesNoSense) {
  const auto refused = [](KvSpec spec, const std::string& says) {
    expect_refused([&] { KvState state(spec); }, ErrorCode::invalid_argument, says);
  };
  const LayerSpec layer{1, 8, std::nullopt};
  refused(spec_of({}, 10, 1), "at least one layer");
  refused(spec_of({layer}, 0, 1), "capacity must be at least 1 token, not 0");
  refused(spec_of({layer}, -5, 1), "capacity must be at least 1 token, not -5");
  refused(spec_of({layer}, 10, 0), "the largest step must be at least 1 token, not 0");
  refused(spec_of({layer}, 10, 1, DType::q4_1), "f32, f16, q8_0 or q4_0, not q4_1");
  refused(spec_of({layer}, 10, 1, DType::q8_0), "q8_0 needs heads of a multiple of 32 elements, not 8");
  refused(spec_of({{0, 8, std::nullopt}}, 10, 1), "at least one KV head");
  refused(spec_of({{1, 0, std::nullopt}}, 10, 1), "head_dim must be between 1 and 576, not 0");
  refused(spec_of({{1, 577, std::nullopt}}, 10, 1), "head_dim must be between 1 and 576, not 577");
  refused(spec_of({{1, 8, 0}}, 10, 1),
          "a window must be at least 1 and at most 1099511627776 positions, not 0");
}

TEST(KvState, RefusesSizesBeyondWhatMemoryCanAddress_WithoutOverflowOnTheWay) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t capacity :
       {kMost, kMost / 2, kMost / 32, std::int64_t{1} << 59, std::int64_t{1} << 40})
    for (const std::int64_t step : {std::int64_t{1}, kMost, std::int64_t{1} << 40})
      for (const auto window :
           {std::optional<std::int64_t>{}, std::optional<std::int64_t>{std::int64_t{1} << 40},
            std::optional<std::int64_t>{kMost}}) {
        try {
          KvState state(spec_of({{4, 512, window}}, capacity, step));
          state.begin(1);  // address space is reserved with the first row
          ADD_FAILURE() << "accepted a capacity of " << capacity << " and steps of " << step;
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::out_of_memory)
              << error.message();
        }
      }
}

}  // namespace
}  // namespace kvtide
