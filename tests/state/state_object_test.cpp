// A state as an object that other programs hold: made from plain rows, looked at, forked, saved.
#include "kvtide/state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kvtide/error.h"
#include "state/state_object.h"
#include "tests/formats/temporary_folder.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

StateShape shape(ElementType type = ElementType::f32, std::int64_t capacity = 300) {
  StateShape made;
  made.layers = {{2, 32, std::nullopt}, {2, 32, 40}};
  made.key_type = made.value_type = type;
  made.capacity = capacity;
  return made;
}

// Every number is different, and small enough for f16: layer, part, head, position and column are in it.
std::vector<float> numbers(int layer, KvPart part, const PosRange& positions) {
  std::vector<float> out;
  for (int head = 0; head < 2; ++head)
    for (Pos p = positions.first; p < positions.last; ++p)
      for (int i = 0; i < 32; ++i)
        out.push_back(static_cast<float>(p) +
                      static_cast<float>(layer * 4 + head * 2 + (part == KvPart::keys)) / 8.0f -
                      static_cast<float>(i) * 4.0f);
  return out;
}

State filled(ElementType type, Pos position, std::vector<TokenId> tokens = {}) {
  State state(shape(type), position, std::move(tokens));
  for (const int layer : {0, 1})
    for (const KvPart part : {KvPart::keys, KvPart::values})
      state.write(layer, part, {0, position}, numbers(layer, part, {0, position}));
  return state;
}

std::vector<TokenId> ids(Pos count) {
  std::vector<TokenId> made(static_cast<std::size_t>(count));
  std::iota(made.begin(), made.end(), 5);
  return made;
}

std::vector<float> read(const State& state, int layer, KvPart part, const PosRange& positions) {
  std::vector<float> out(static_cast<std::size_t>(2 * positions.size() * 32));
  state.read(layer, part, positions, out);
  return out;
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(StateObject, RowsThatWereWritten_AreReadBack_AndSeenInPlace) {
  for (const ElementType type : {ElementType::f32, ElementType::f16}) {
    const State state = filled(type, 100);
    EXPECT_EQ(state.position(), 100);
    EXPECT_EQ(state.rows(), 100);
    EXPECT_EQ(state.runs(1), (std::vector<PosRange>{{0, 100}}));
    for (const int layer : {0, 1})
      for (const KvPart part : {KvPart::keys, KvPart::values}) {
        const PosRange some{10, 90};
        const std::vector<float> wanted = numbers(layer, part, some);
        EXPECT_EQ(read(state, layer, part, some), wanted);
        const RowsView view = state.view(layer, part, some);
        EXPECT_EQ(view.kv_heads, 2);
        EXPECT_EQ(view.row_bytes, type == ElementType::f32 ? 128 : 64);
        if (type != ElementType::f32) continue;
        float last = 0;
        std::memcpy(&last, view.data + view.head_stride + 79 * view.row_bytes + 31 * 4, 4);
        EXPECT_EQ(last, wanted.back());
      }
  }
}

TEST(StateObject, RowsBeyondThoseHeldReadAsZeros) {
  const State state = filled(ElementType::f16, 10);
  const std::vector<float> rows = read(state, 0, KvPart::keys, {8, 12});
  EXPECT_EQ(rows[32], numbers(0, KvPart::keys, {9, 10})[0]);
  for (std::size_t i = 64; i < 128; ++i) EXPECT_EQ(rows[i], 0.0f);
}

TEST(StateObject, AViewOutlivesItsState_AndItsPagesStayWhenAWindowMovesOn) {
  auto state = std::make_unique<State>(filled(ElementType::f32, 100));
  const RowsView window = state->view(1, KvPart::keys, {0, 100});
  const std::vector<float> wanted = numbers(1, KvPart::keys, {0, 100});
  KvState& kv = state->internals().kv;
  kv.set_max_step(64);
  testing::append(kv, 200);  // the window of 40 is now far beyond the rows of the view
  EXPECT_GT(state->runs(1).front().first, 100);
  EXPECT_EQ(std::memcmp(window.data, wanted.data(), 100 * 128), 0);
  state.reset();
  EXPECT_EQ(std::memcmp(window.data, wanted.data(), 100 * 128), 0);
}

// What a view kept from being given back is given back later: with the next row after the view is gone.
TEST(StateObject, PagesThatAViewHeldBack_AreReturnedWhenItIsGone) {
  StateShape wide = shape(ElementType::f32, 1 << 16);
  wide.layers = {{1, 256, 64}};
  State state(wide);
  KvState& kv = state.internals().kv;
  kv.set_max_step(256);
  testing::append(kv, 4096);
  RowsView view = state.view(0, KvPart::keys, state.runs(0).back());
  const auto* row = view.data;
  testing::append(kv, 512);
  view.pin.reset();
  testing::append(kv, 512);
  // A page given back reads as zeros.
  EXPECT_TRUE(std::all_of(row + 8192, row + 12288, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(StateObject, ForksShareRows_AndCarryTokensAndIdentity) {
  State state = filled(ElementType::f16, 100, ids(100));
  state.set_identity({{"model", "abc"}});
  State fork = state.fork();
  EXPECT_EQ(fork.tokens(), ids(100));
  EXPECT_EQ(fork.identity().at("model"), "abc");
  EXPECT_GT(fork.shared_bytes(), 0);
  fork.apply(Truncate{30});
  EXPECT_EQ(fork.tokens(), ids(30));
  EXPECT_EQ(state.tokens(), ids(100));
  EXPECT_EQ(read(state, 0, KvPart::keys, {0, 100}), numbers(0, KvPart::keys, {0, 100}));
}

TEST(StateObject, RowsThatOthersSee_CannotBeWritten) {
  State state = filled(ElementType::f32, 20);
  const auto overwrite = [&] { state.write(0, KvPart::keys, {0, 20}, numbers(1, KvPart::keys, {0, 20})); };
  {
    const State fork = state.fork();
    EXPECT_NE(refusal(overwrite).find("seen by a fork or a view"), std::string::npos);
  }
  {
    const RowsView view = state.view(0, KvPart::keys, {3, 4});
    EXPECT_NE(refusal(overwrite).find("seen by a fork or a view"), std::string::npos);
  }
  EXPECT_EQ(read(state, 0, KvPart::keys, {0, 20}), numbers(0, KvPart::keys, {0, 20}));
}

TEST(StateObject, NumbersThatAreNotFinite_AreRefused_AndChangeNothing) {
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::q8_0}) {
    State state = filled(type, 20);
    const auto before = read(state, 0, KvPart::keys, {0, 20});
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto rows = numbers(0, KvPart::values, {0, 20});
      rows[777] = bad;
      EXPECT_NE(refusal([&] {
                  state.write(0, KvPart::keys, {0, 20}, rows);
                }).find("NaN or infinity"),
                std::string::npos);
    }
    EXPECT_EQ(read(state, 0, KvPart::keys, {0, 20}), before);
  }
}

TEST(StateObject, SavedAndLoaded_IsTheSameState_WithAndWithoutTokens) {
  const testing::TemporaryFolder folder;
  for (const bool known : {true, false})
    for (const ElementType type :
         {ElementType::f32, ElementType::f16, ElementType::q8_0, ElementType::q4_0}) {
      const std::string path = folder.path("state.kv");
      State state = filled(type, 77, known ? ids(77) : std::vector<TokenId>());
      state.apply(SetAttention{50});
      state.save(path);
      const State loaded = State::load(path);
      EXPECT_EQ(loaded.position(), 77);
      EXPECT_EQ(loaded.tokens(), state.tokens());
      EXPECT_EQ(loaded.attention_size(), 50);
      EXPECT_EQ(loaded.shape().layers, state.shape().layers);
      EXPECT_EQ(read(loaded, 1, KvPart::values, {0, 77}), read(state, 1, KvPart::values, {0, 77}));
    }
}

TEST(StateObject, PlainRowsTellWhatHappenedBefore) {
  State state = filled(ElementType::f16, 100);
  EXPECT_EQ(state.plain_rows(0).first, 0);
  EXPECT_EQ(state.plain_rows(0).why, "");
  state.apply(Drop{{10, 20}});
  EXPECT_EQ(state.plain_rows(0).first, 20);
  EXPECT_NE(state.plain_rows(0).why.find("dropped"), std::string::npos);
  const State windows(shape(), 100, {}, true);
  EXPECT_EQ(windows.runs(1), (std::vector<PosRange>{{60, 100}}));
  EXPECT_EQ(windows.plain_rows(1).first, 60);
  EXPECT_EQ(windows.plain_rows(0).first, 0);
}

TEST(StateObject, WhatMakesNoSense_IsRefusedWithNumbers) {
  State state = filled(ElementType::f16, 20);
  std::vector<float> few(10);
  const auto has = [](const std::string& message, const char* words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  has(refusal([&] { state.runs(2); }), "no layer 2");
  has(refusal([&] { state.runs(-1); }), "no layer -1");
  has(refusal([&] { state.view(0, KvPart::keys, {10, 21}); }), "does not hold positions 10 to 21");
  has(refusal([&] { state.view(0, KvPart::keys, {5, 5}); }), "does not hold positions 5 to 5");
  has(refusal([&] { state.read(0, KvPart::keys, {0, 5}, few); }), "[2][5][32]");
  has(refusal([&] { state.write(0, KvPart::keys, {0, 5}, few); }), "320 floats");
  has(refusal([&] { State(shape(ElementType::i32), 0, {}); }), "f32, f16, q8_0 or q4_0, not i32");
  has(refusal([&] { State(shape(), 301, {}); }), "300 rows cannot hold 301");
  has(refusal([&] { State(shape(), 3, {1, 2}); }), "2 tokens do not fill 3");
  has(refusal([&] { State(shape(), 2, {1, -2}); }), "-2 is negative");
  StateShape rolling = shape();
  rolling.rolling = Rolling{4, 60};
  has(refusal([&] { State(rolling, 65, {}); }), "65 positions are more than 4 sinks and 60");
  EXPECT_EQ(State(rolling, 64, {}).position(), 64);
}

}  // namespace
}  // namespace kvtide
