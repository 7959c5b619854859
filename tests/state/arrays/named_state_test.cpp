// kvtide::NamedState: a memory as the named tensors of other runtimes: what is written is read, in every
// layout, and what an array cannot say is refused or told.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "kvtide/error.h"
#include "kvtide/named_state.h"
#include "tests/formats/temporary_folder.h"
#include "tests/state/state_rows.h"

namespace kvtide {
namespace {

using testing::row_numbers;
using testing::stored_number;
using Bytes = std::vector<std::byte>;
constexpr int kDim = 32;

DType dtype_of(ElementType type) {
  return type == ElementType::f32 ? DType::f32 : type == ElementType::f16 ? DType::f16 : DType::q8_0;
}

// Fills rows with the numbers of their layer, head and position.
void append(NamedState& state, std::int64_t tokens, std::int64_t text = 0) {
  const Pos first = state.position();
  state.append(tokens, [&](const Row& row) {
    const auto key = row_numbers(text + first + row.token, static_cast<int>(row.layer),
                                 static_cast<int>(row.kv_head), true, kDim);
    const auto value = row_numbers(text + first + row.token, static_cast<int>(row.layer),
                                   static_cast<int>(row.kv_head), false, kDim);
    std::copy(key.begin(), key.end(), row.key.begin());
    std::copy(value.begin(), value.end(), row.value.begin());
  });
}

// "" when `bytes` are blocks of [heads][capacity] rows, of which the first hold positions [first, last) and
// the rest zeros. blocks: (layer, key?) in the order of the array.
std::string compare_blocks(const Bytes& bytes, ElementType type,
                           const std::vector<std::pair<int, bool>>& blocks, int heads, std::int64_t capacity,
                           Pos first, Pos last) {
  const DType dtype = dtype_of(type);
  const std::int64_t row = dtype_bytes(dtype, kDim);
  if (static_cast<std::int64_t>(bytes.size()) !=
      static_cast<std::int64_t>(blocks.size()) * heads * capacity * row)
    return cat(bytes.size(), " bytes");
  const std::byte* at = bytes.data();
  for (const auto& [layer, key] : blocks)
    for (int head = 0; head < heads; ++head)
      for (std::int64_t i = 0; i < capacity; ++i, at += row) {
        const std::string wrong =
            i < last - first ? testing::compare_row(dtype, at, row_numbers(first + i, layer, head, key, kDim))
                             : testing::all_zero(at, row);
        if (!wrong.empty()) return cat("layer ", layer, key ? " key " : " value ", i, ": ", wrong);
      }
  return "";
}

std::vector<std::string> names_of(const NamedState& state) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : state.spec().tensors) names.push_back(tensor.name);
  return names;
}

std::vector<std::int64_t> shape_of(const NamedState& state, std::string_view name) {
  for (const TensorSpec& tensor : state.spec().tensors)
    if (tensor.name == name) return tensor.shape;
  return {};
}

using Shape = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

void expect_refused(const std::function<void()>& what, const std::string& says,
                    ErrorCode code = ErrorCode::invalid_argument) {
  try {
    what();
    ADD_FAILURE() << "accepted, instead of saying: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_EQ(error.message(), says);
  }
}

constexpr ElementType kTypes[] = {ElementType::f32, ElementType::f16, ElementType::q8_0};

TEST(NamedState, UnifiedHoldsAllKeysAndThenAllValues_AndGrowsAndShrinks) {
  for (const ElementType type : kTypes) {
    NamedState state = make_state(unified_spec(
        {.layers = 3, .kv_heads = 2, .capacity = 8, .head_dim = kDim, .key_type = type, .value_type = type}));
    EXPECT_EQ(names_of(state), Names{"kv_cache"});
    EXPECT_EQ(state.position(), 0);
    const std::vector<std::pair<int, bool>> blocks{{0, true},  {1, true},  {2, true},
                                                   {0, false}, {1, false}, {2, false}};
    EXPECT_EQ(compare_blocks(state.read("kv_cache"), type, blocks, 2, 8, 0, 0), "");
    append(state, 5);
    EXPECT_EQ(compare_blocks(state.read("kv_cache"), type, blocks, 2, 8, 0, 5), "");
    expect_refused([&] { append(state, 4); }, "the state is full: 5 of 8 rows are used and 4 more do not fit",
                   ErrorCode::context_full);
    state.apply(Expand{16});
    EXPECT_EQ(shape_of(state, "kv_cache"), (Shape{6, 2, 16, kDim}));
    append(state, 4);
    EXPECT_EQ(compare_blocks(state.read("kv_cache"), type, blocks, 2, 16, 0, 9), "");
    EXPECT_EQ(state.capacity_bytes(), static_cast<std::int64_t>(state.read("kv_cache").size()));
    EXPECT_EQ(state.plan(Compact{8}).refusal(), "cannot compact to 8 rows: 9 are in use");
    state.apply(Truncate{7});
    state.apply(Compact{8});
    EXPECT_EQ(compare_blocks(state.read("kv_cache"), type, blocks, 2, 8, 0, 7), "");
  }
}

TEST(NamedState, SplitKeepsLayersWithAWindowInATensorOfThatManyRows) {
  NamedState state = make_state(split_spec(
      {.layers = 3, .kv_heads = 1, .capacity = 40, .head_dim = kDim, .windows = {{6}, std::nullopt, {6}}}));
  EXPECT_EQ(names_of(state), (Names{"kv_cache_local", "kv_cache_global"}));
  EXPECT_EQ(shape_of(state, "kv_cache_local"), (Shape{4, 1, 6, kDim}));
  EXPECT_EQ(shape_of(state, "kv_cache_global"), (Shape{2, 1, 40, kDim}));
  append(state, 30);
  // Layers are numbered in the order of the tensors.
  const auto local = state.read_tensor("kv_cache_local", {});
  EXPECT_EQ(local.rows, (PosRange{24, 30}));
  EXPECT_EQ(local.left_out, 0) << "what has left a window is no loss";
  EXPECT_EQ(compare_blocks(local.bytes, ElementType::f16, {{0, true}, {1, true}, {0, false}, {1, false}}, 1,
                           6, 24, 30),
            "");
  EXPECT_EQ(
      compare_blocks(state.read("kv_cache_global"), ElementType::f16, {{2, true}, {2, false}}, 1, 40, 0, 30),
      "");
  state.apply(Expand{80});
  EXPECT_EQ(shape_of(state, "kv_cache_local"), (Shape{4, 1, 6, kDim})) << "a window does not grow";
  EXPECT_EQ(shape_of(state, "kv_cache_global"), (Shape{2, 1, 80, kDim}));
}

TEST(NamedState, PerLayerAndStackedHoldKeysAndValuesApart_InTypesOfTheirOwn) {
  const KvShape shape{.layers = 2,
                      .kv_heads = 2,
                      .capacity = 8,
                      .head_dim = kDim,
                      .key_type = ElementType::q8_0,
                      .value_type = ElementType::f32};
  NamedState per_layer = make_state(per_layer_spec(shape));
  EXPECT_EQ(names_of(per_layer),
            (Names{"layers.0.k_state", "layers.0.v_state", "layers.1.k_state", "layers.1.v_state"}));
  EXPECT_EQ(shape_of(per_layer, "layers.1.v_state"), (Shape{1, 2, 8, kDim}));
  append(per_layer, 3);
  for (const int layer : {0, 1}) {
    EXPECT_EQ(compare_blocks(per_layer.read(cat("layers.", layer, ".k_state")), ElementType::q8_0,
                             {{layer, true}}, 2, 8, 0, 3),
              "");
    EXPECT_EQ(compare_blocks(per_layer.read(cat("layers.", layer, ".v_state")), ElementType::f32,
                             {{layer, false}}, 2, 8, 0, 3),
              "");
  }
  NamedState stacked = make_state(stacked_spec(shape));
  EXPECT_EQ(names_of(stacked), (Names{"keyCache", "valueCache", "pastLen"}));
  EXPECT_EQ(shape_of(stacked, "keyCache"), (Shape{2, 1, 2, 8, kDim}));
  append(stacked, 3);
  EXPECT_EQ(compare_blocks(stacked.read("keyCache"), ElementType::q8_0, {{0, true}, {1, true}}, 2, 8, 0, 3),
            "");
  EXPECT_EQ(
      compare_blocks(stacked.read("valueCache"), ElementType::f32, {{0, false}, {1, false}}, 2, 8, 0, 3), "");
  const Bytes past = stacked.read("pastLen");
  ASSERT_EQ(past.size(), 4u);
  EXPECT_EQ(past[0], std::byte{3});
  // Converted on the way out.
  const auto as_f32 = stacked.read_tensor("keyCache", {.type = ElementType::f32, .exact_only = false});
  EXPECT_EQ(compare_blocks(as_f32.bytes, ElementType::f32, {{0, true}, {1, true}}, 2, 8, 0, 3), "");
}

TEST(NamedState, WhatWasReadCanBeWrittenIntoAnotherState_WhichGoesOnTheSame) {
  const KvShape shape{.layers = 2, .kv_heads = 2, .capacity = 24, .head_dim = kDim, .windows = {}};
  KvShape windows = shape;
  windows.windows = {{5}, std::nullopt};
  for (const StateSpec& spec :
       {unified_spec(shape), split_spec(windows), per_layer_spec(windows), stacked_spec(shape)}) {
    NamedState one = make_state(spec), other = make_state(spec);
    append(one, 17);
    append(other, 3, 1000);
    std::vector<Bytes> contents;
    std::vector<TensorBytes> tensors;
    for (const TensorSpec& tensor : spec.tensors) contents.push_back(one.read(tensor.name));
    for (std::size_t i = 0; i < contents.size(); ++i)
      if (spec.tensors[i].role != TensorRole::position)
        tensors.push_back({spec.tensors[i].name, contents[i]});
    other.write(tensors, 17);
    EXPECT_EQ(other.position(), 17);
    append(one, 4);
    append(other, 4);
    for (const TensorSpec& tensor : spec.tensors)
      EXPECT_EQ(one.read(tensor.name), other.read(tensor.name)) << tensor.name;
  }
}

TEST(NamedState, AWriteThatIsRefused_ChangesNothing) {
  NamedState state = make_state(stacked_spec({.layers = 1, .kv_heads = 1, .capacity = 4, .head_dim = kDim}));
  append(state, 2);
  const Bytes keys = state.read("keyCache"), values = state.read("valueCache");
  Bytes broken = values;
  broken[0] = broken[1] = std::byte{0xff};
  const auto short_one = std::span(keys).first(8);
  expect_refused([&] { state.write({{{"keyCache", keys}}}, 2); }, "tensor 'valueCache' is missing");
  expect_refused(
      [&] {
        state.write({{{"keyCache", keys}, {"other", values}}}, 2);
      },
      "there is no tensor 'other'; there are: keyCache, valueCache, pastLen");
  expect_refused(
      [&] {
        state.write({{{"keyCache", keys}, {"keyCache", keys}}}, 2);
      },
      "tensor 'keyCache' is given twice");
  expect_refused(
      [&] {
        state.write({{{"keyCache", short_one}, {"valueCache", values}}}, 2);
      },
      "tensor 'keyCache' has 256 bytes; 8 were given");
  expect_refused(
      [&] {
        state.write({{{"pastLen", keys}}}, 2);
      },
      "tensor 'pastLen' follows from the position and is not written");
  expect_refused(
      [&] {
        state.write({{{"keyCache", keys}, {"valueCache", broken}}}, 2);
      },
      "array 'valueCache' holds NaN or infinity in layer 0");
  expect_refused(
      [&] {
        state.write({{{"keyCache", keys}, {"valueCache", values}}}, 5);
      },
      "5 positions do not fit a capacity of 4");
  expect_refused(
      [&] {
        state.write({{{"keyCache", keys}, {"valueCache", values}}}, -1);
      },
      "a position of -1 is below 0");
  EXPECT_EQ(state.position(), 2);
  EXPECT_EQ(state.read("keyCache"), keys);
  EXPECT_EQ(state.read("valueCache"), values);
}

TEST(NamedState, WhatFillThrows_LeavesTheStateAsItWas) {
  NamedState state = make_state(unified_spec({.layers = 1, .kv_heads = 1, .capacity = 4, .head_dim = kDim}));
  append(state, 1);
  const Bytes before = state.read("kv_cache");
  EXPECT_THROW(state.append(2,
                            [](const Row& row) {
                              row.key[0] = 7.0f;
                              if (row.token == 1) throw 7;
                            }),
               int);
  EXPECT_EQ(state.position(), 1);
  EXPECT_EQ(state.read("kv_cache"), before);
}

TEST(NamedState, ViewsShowTheRowsWhereTheyLie) {
  NamedState state = make_state(per_layer_spec({.layers = 2,
                                                .kv_heads = 2,
                                                .capacity = 300,
                                                .head_dim = kDim,
                                                .key_type = ElementType::q8_0,
                                                .value_type = ElementType::f16}));
  append(state, 100);
  const auto check = [](const NamedState& s, std::int64_t wanted_rows) {
    for (const int layer : {0, 1})
      for (const bool key : {true, false}) {
        Pos next = 0;
        for (const TensorView& view : s.views(cat("layers.", layer, key ? ".k_state" : ".v_state"))) {
          EXPECT_EQ(view.block, 0);
          EXPECT_EQ(view.first, next);
          next += view.rows;
          ASSERT_EQ(view.kv_heads, 2);
          for (int head = 0; head < 2; ++head)
            for (std::int64_t i = 0; i < view.rows; ++i)
              ASSERT_EQ(testing::compare_row(key ? DType::q8_0 : DType::f16,
                                             view.data + head * view.head_stride + i * view.row_stride,
                                             row_numbers(view.first + i, layer, head, key, kDim)),
                        "");
        }
        EXPECT_EQ(next, wanted_rows);
      }
  };
  ASSERT_EQ(state.views("layers.1.v_state").size(), 1u) << "one run of rows";
  const std::byte* before = state.views("layers.1.v_state")[0].data;
  check(state, 100);
  append(state, 150);
  EXPECT_EQ(state.views("layers.1.v_state")[0].data, before) << "appending moves nothing";
  state.apply(Expand{100000});
  EXPECT_EQ(state.views("layers.1.v_state")[0].data, before) << "growing moves nothing";
  check(state, 250);
  NamedState fork = state.fork();
  append(fork, 20);
  EXPECT_EQ(fork.views("layers.1.v_state")[0].data, before) << "a fork shares the past";
  EXPECT_EQ(fork.views("layers.1.v_state").size(), 2u) << "and has a future of its own";
  check(fork, 270);
  check(state, 250);
}

StateSpec with_recurrent(std::int64_t slack) {
  StateSpec spec = unified_spec({.layers = 1, .kv_heads = 1, .capacity = 64, .head_dim = kDim});
  spec.tensors.push_back({"conv_state", TensorRole::recurrent, {6, 2}, ElementType::f32});
  spec.tensors.push_back({"prev_value", TensorRole::recurrent, {8}, ElementType::f16});
  spec.slack = slack;
  return spec;
}

Bytes filled(std::size_t bytes, int with) { return Bytes(bytes, static_cast<std::byte>(with)); }

TEST(NamedState, RecurrentTensorsAreReplacedAsAWhole_AndCannotBeResized) {
  StateSpec alone;
  alone.tensors = {{"conv_state", TensorRole::recurrent, {6, 2}, ElementType::f32},
                   {"prev_value", TensorRole::recurrent, {8}, ElementType::f16}};
  NamedState state = make_state(alone);
  EXPECT_EQ(state.capacity(), 0);
  EXPECT_EQ(state.read("conv_state"), filled(48, 0));
  state.append(1, nullptr);
  state.write_recurrent("conv_state", filled(48, 1));
  EXPECT_EQ(state.position(), 1);
  EXPECT_EQ(state.read("conv_state"), filled(48, 1));
  EXPECT_EQ(state.read("prev_value"), filled(16, 0));
  EXPECT_EQ(state.plan(Expand{1 << 25}).refusal(), "cannot expand: tensor 'conv_state' has no sequence axis");
  EXPECT_EQ(state.plan(Compact{4}).refusal(), "cannot compact: tensor 'conv_state' has no sequence axis");
  expect_refused([&] { state.write_recurrent("conv_state", filled(44, 1)); },
                 "tensor 'conv_state' has 48 bytes and cannot be resized; 44 were given");
  expect_refused([&] { state.write_recurrent("prev_value", filled(16, 0xff)); },
                 "tensor 'prev_value' would hold NaN or infinity");
  EXPECT_EQ(state.held_bytes(), 64);
}

TEST(NamedState, RecurrentTensorsBesideRows_GoBackAsFarAsTheSlack) {
  NamedState state = make_state(with_recurrent(3));
  for (int token = 1; token <= 10; ++token) {
    append(state, 1);
    state.write_recurrent("conv_state", filled(48, token));
  }
  EXPECT_EQ(state.plan(Truncate{6}).refusal(),
            "cannot truncate to 6 positions: tensor 'conv_state' of that position was not kept (a slack of "
            "3 keeps that many); the smallest that works is 7");
  EXPECT_EQ(state.plan(Drop{{2, 4}}).refusal(),
            "cannot drop positions 2 to 4: tensor 'conv_state' holds something of all of them");
  NamedState fork = state.fork();
  state.apply(Truncate{8});
  EXPECT_EQ(state.read("conv_state"), filled(48, 8));
  EXPECT_EQ(fork.read("conv_state"), filled(48, 10));
  state.apply(Expand{128});
  EXPECT_EQ(shape_of(state, "kv_cache"), (Shape{2, 1, 128, kDim}));
  EXPECT_EQ(state.read("conv_state"), filled(48, 8));
  append(state, 5);
  EXPECT_NE(state.plan(Truncate{11}).refusal(), "") << "in the middle of a step, nothing was known";
  state.apply(Truncate{0});
  EXPECT_EQ(state.read("conv_state"), filled(48, 0));
}

TEST(NamedState, GoesToDiskAndBack_RecurrentTensorsAndTheirPastIncluded) {
  const testing::TemporaryFolder folder;
  NamedState state = make_state(with_recurrent(3)), other = make_state(with_recurrent(3));
  for (int token = 1; token <= 6; ++token) {
    append(state, 1);
    state.write_recurrent("conv_state", filled(48, token));
    state.write_recurrent("prev_value", filled(16, 2 * token));
  }
  state.save(folder.path("a.kv"));
  other.load(folder.path("a.kv"));
  EXPECT_EQ(other.position(), 6);
  for (NamedState* s : {&state, &other}) {
    s->apply(Truncate{4});
    append(*s, 2);
  }
  for (const char* name : {"kv_cache", "conv_state", "prev_value"})
    EXPECT_EQ(state.read(name), other.read(name));
  EXPECT_EQ(other.read("conv_state"), filled(48, 4));
  EXPECT_EQ(other.read("prev_value"), filled(16, 8));

  NamedState stranger =
      make_state(unified_spec({.layers = 1, .kv_heads = 1, .capacity = 64, .head_dim = kDim}));
  append(stranger, 2);
  const Bytes before = stranger.read("kv_cache");
  try {
    stranger.load(folder.path("a.kv"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find("kv_cache f16 [2, 1, *, 32]; conv_state f32 [6, 2]; prev_value f16 [8]"),
              std::string::npos)
        << error.message();
  }
  EXPECT_EQ(stranger.read("kv_cache"), before);
}

TEST(NamedState, RowsThatAnArrayCannotSay_AreRefusedOrToldOf) {
  StateSpec spec = unified_spec({.layers = 1,
                                 .kv_heads = 1,
                                 .capacity = 64,
                                 .head_dim = kDim,
                                 .key_type = ElementType::f32,
                                 .value_type = ElementType::f32});
  NamedState gap = make_state(spec);
  append(gap, 30);
  gap.apply(Drop{{10, 12}});
  expect_refused(
      [&] { gap.read("kv_cache"); },
      "tensor 'kv_cache' cannot say it all: positions before it were dropped or moved; with exact_only "
      "it holds the positions from 12 on");
  const TensorRead rest = gap.read_tensor("kv_cache", {.type = {}, .exact_only = true});
  EXPECT_EQ(rest.left_out, 12);
  EXPECT_EQ(rest.rows, (PosRange{12, 30}));
  EXPECT_EQ(compare_blocks(rest.bytes, ElementType::f32, {{0, true}, {0, false}}, 1, 64, 12, 30), "");
  EXPECT_EQ(gap.views("kv_cache").size(), 4u) << "views show the rows on both sides of the gap";

  spec.frequencies = {1.0, 0.25};
  spec.rolling = Rolling{2, 20};
  NamedState rolling = make_state(spec);
  append(rolling, 50);
  expect_refused(
      [&] { rolling.read("kv_cache"); },
      "tensor 'kv_cache' cannot say it all: the rolling window has moved on; with exact_only it holds "
      "the positions from 30 on");
  EXPECT_EQ(rolling.read_tensor("kv_cache", {.type = {}, .exact_only = true}).rows, (PosRange{30, 50}));
}

// A key of pairs (1, 0) written at position p is (cos p f, sin p f); seen s tokens nearer, it has to be that
// of position p + s.
TEST(NamedState, KeysThatWereMoved_AreReadAsThoseOfThePlaceWhereTheyAreSeen) {
  StateSpec spec = per_layer_spec({.layers = 1,
                                   .kv_heads = 1,
                                   .capacity = 64,
                                   .head_dim = 5,
                                   .key_type = ElementType::f32,
                                   .value_type = ElementType::f32});
  spec.frequencies = {1.0, 0.01};
  NamedState state = make_state(spec);
  state.append(20, [](const Row& row) {
    const auto p = static_cast<double>(row.token);
    row.key[0] = static_cast<float>(std::cos(p));
    row.key[2] = static_cast<float>(std::sin(p));
    row.key[1] = static_cast<float>(std::cos(0.01 * p));
    row.key[3] = static_cast<float>(std::sin(0.01 * p));
    row.key[4] = row.value[0] = static_cast<float>(row.token);  // not rotated
  });
  state.apply(Drop{{6, 10}, true});
  expect_refused(
      [&] { state.read("layers.0.k_state"); },
      "tensor 'layers.0.k_state' cannot say it all: 6 rows were moved; with exact_only their keys are "
      "rotated to where they are seen");
  const ReadTensor exact{.type = {}, .exact_only = true};
  const TensorRead keys = state.read_tensor("layers.0.k_state", exact);
  const TensorRead values = state.read_tensor("layers.0.v_state", exact);
  EXPECT_EQ(keys.rows, (PosRange{4, 20}));
  EXPECT_EQ(keys.moved, 6);
  EXPECT_EQ(keys.left_out, 0) << "all that is held is there";
  std::vector<float> k(64 * 5), v(64 * 5);
  std::memcpy(k.data(), keys.bytes.data(), k.size() * 4);
  std::memcpy(v.data(), values.bytes.data(), v.size() * 4);
  for (std::size_t i = 0; i < 16; ++i) {
    const double seen = static_cast<double>(i) + 4.0;
    EXPECT_NEAR(k[i * 5], std::cos(seen), 1e-6);
    EXPECT_NEAR(k[i * 5 + 2], std::sin(seen), 1e-6);
    EXPECT_NEAR(k[i * 5 + 1], std::cos(0.01 * seen), 1e-6);
    EXPECT_NEAR(k[i * 5 + 3], std::sin(0.01 * seen), 1e-6);
    const auto written = static_cast<float>(i < 6 ? i : i + 4);
    EXPECT_EQ(k[i * 5 + 4], written);
    EXPECT_EQ(v[i * 5], written);
  }
}

TEST(NamedState, ASpecThatMakesNoSense_IsRefusedByTheTensorsName) {
  const auto refused = [](std::vector<TensorSpec> tensors, const std::string& says) {
    StateSpec spec;
    spec.tensors = std::move(tensors);
    expect_refused([&] { make_state(spec); }, says);
  };
  const auto both = TensorRole::keys_and_values;
  refused({}, "a state needs at least one tensor");
  refused({{"", both, {2, 1, 4, 4}}}, "tensor '' needs a name");
  refused({{"a", both, {2, 1, 4, 4}}, {"a", both, {2, 1, 4, 4}}}, "tensor 'a' is there twice");
  refused({{"a", both, {3, 1, 4, 4}}},
          "tensor 'a' must be [2 * layers, kv_heads, capacity, head_dim], not [3, 1, 4, 4]");
  refused({{"a", both, {2, 1, 0, 4}}},
          "tensor 'a' must be [2 * layers, kv_heads, capacity, head_dim], not [2, 1, 0, 4]");
  refused({{"a", both, {2, 1, 4, 4}}, {"b", both, {2, 1, 5, 4}}},
          "tensor 'b' has room for 5 rows, where the others and its window say 4");
  refused({{"a", both, {2, 1, 4, 4}, ElementType::i32}}, "tensor 'a' must be f32, f16 or q8_0");
  refused({{"a", both, {2, 1, 4, 4}, ElementType::f16}, {"b", both, {2, 1, 4, 4}, ElementType::f32}},
          "tensor 'b' is f32, and the tensors before it are f16");
  refused({{"a", both, {2, 1, 4, 4}, ElementType::q8_0}},
          "KV state: q8_0 needs heads of a multiple of 32 elements, not 4; use f16");
  refused({{"k", TensorRole::keys, {1, 1, 4, 4}}}, "tensor 'k' has no tensor of values that belongs to it");
  refused({{"v", TensorRole::values, {1, 1, 4, 4}}}, "tensor 'v' has no tensor of keys that belongs to it");
  refused({{"k", TensorRole::keys, {1, 1, 4, 4}}, {"v", TensorRole::values, {1, 2, 4, 4}}},
          "tensor 'v' is [1, 2, 4, 4], and its keys 'k' are [1, 1, 4, 4]");
  refused({{"p", TensorRole::position, {2}, ElementType::i32}},
          "tensor 'p' holds the position and must be i32 [1]");
  refused({{"r", TensorRole::recurrent, {0}, ElementType::f32}},
          "KV state: tensor 'r' must have extents of at least 1 and at most 268435456 elements");
  expect_refused(
      [] {
        unified_spec({.layers = 2, .windows = {{4}, std::nullopt}});
      },
      "layers 0 and 1 have other windows; the layouts split and per layer hold them");
  expect_refused([] { unified_spec({.layers = 2, .key_type = ElementType::f32}); },
                 "keys and values of one tensor have one type; other layouts keep them apart");
}

}  // namespace
}  // namespace kvtide
