// States: values of a moment, written in place, shared between functions; calls that fail change nothing.
#include <gtest/gtest.h>

#include "coreml/run/loaded.h"
#include "coreml/write/builder.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_numbers.h"

namespace kvtide::coreml {
namespace {

const ValueType kCache = tensor(DataType::fp16, {2, 4});

// cache[row, at : at + T] = x, with the values of the whole cache as the program sees them behind it.
std::string update(FunctionBuilder& f, const std::string& read, const std::string& x, int row) {
  return f.op("slice_update", {{"x", read}, {"update", x}, {"begin", {row, 1}}, {"end", {row + 1, 3}}},
              kCache);
}

FunctionBuilder two_writes(bool keeps_first) {
  FunctionBuilder f("main");
  const auto x = f.input("x", DataType::fp16, {1, 2});
  const auto cache = f.state("cache", DataType::fp16, {2, 4});
  const auto before = f.read_state(cache);
  f.write_state(cache, update(f, before, x, 0));
  const auto between = f.read_state(cache);
  f.write_state(cache, update(f, between, x, 1));
  const auto after = f.read_state(cache);
  f.output(f.op("reduce_sum", {{"x", after}, {"axes", {1}}}, tensor(DataType::fp16, {2})), "after");
  if (keeps_first)
    f.output(f.op("reduce_sum", {{"x", before}, {"axes", {1}}}, tensor(DataType::fp16, {2})), "before");
  return f;
}

TEST(States, AreWrittenWhereTheyLie) {
  LoadedModel model(make_package(two_writes(false)), 2, best_kernels());
  StateTensors states = model.make_states("");
  const std::byte* place = states[0].tensor.data.get();
  const auto out = model.predict("", {{"x", halves_of({1, 2}, {5, 6})}}, &states);
  EXPECT_EQ(numbers_in(out[0].tensor), (Numbers{11, 11}));
  EXPECT_EQ(numbers_in(states[0].tensor), (Numbers{0, 5, 6, 0, 0, 5, 6, 0}));
  EXPECT_EQ(states[0].tensor.data.get(), place);
  EXPECT_EQ(model.executor("").report().state_bytes_copied, 0);
}

TEST(States, AValueThatWasReadStaysWhatItWas) {
  LoadedModel model(make_package(two_writes(true)), 1, best_kernels());
  StateTensors states = model.make_states("");
  model.predict("", {{"x", halves_of({1, 2}, {5, 6})}}, &states);
  const auto out = model.predict("", {{"x", halves_of({1, 2}, {1, 2})}}, &states);
  EXPECT_EQ(numbers_in(out[0].tensor), (Numbers{3, 3}));
  EXPECT_EQ(out[1].name, "before");
  EXPECT_EQ(numbers_in(out[1].tensor), (Numbers{11, 11}));
  EXPECT_EQ(model.executor("").report().state_bytes_copied, 2 * 16);  // the first write of each call
}

TEST(States, ACallThatIsCancelledChangesNothing) {
  LoadedModel model(make_package(two_writes(false)), 1, best_kernels());
  StateTensors states = model.make_states("");
  const std::vector<NamedTensor> inputs = {{"x", halves_of({1, 2}, {5, 6})}};
  int steps = 0;
  model.predict("", inputs, &states, [&] { return ++steps > 0; });
  const Numbers before = numbers_in(states[0].tensor);
  for (int most = 0; most < steps; ++most) {
    int asked = 0;
    try {
      model.predict("", {{"x", halves_of({1, 2}, {1, 2})}}, &states, [&] { return asked++ < most; });
      FAIL() << "step " << most;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::cancelled);
    }
    EXPECT_EQ(numbers_in(states[0].tensor), before);
  }
}

TEST(States, ACallThatFailsChangesNothing) {
  FunctionBuilder f("main");
  const auto x = f.input("x", DataType::fp16, {1, 2});
  const auto at = f.input("at", DataType::int32, {1});
  const auto cache = f.state("cache", DataType::fp16, {2, 4});
  f.write_state(cache, update(f, f.read_state(cache), x, 0));
  const auto whole = f.op("mul", {{"x", f.read_state(cache)}, {"y", half(2.0f)}}, kCache);
  f.write_state(cache, whole);
  f.output(f.op("gather", {{"x", f.read_state(cache)}, {"indices", at}, {"axis", 0}},
                tensor(DataType::fp16, {1, 4})));
  LoadedModel model(make_package(std::move(f)), 1, best_kernels());
  StateTensors states = model.make_states("");
  const auto index = [](float i) {
    Tensor result = zeroed_tensor(DataType::int32, {1});
    store(best_kernels(), &i, 1, result, 0);
    return result;
  };
  model.predict("", {{"x", halves_of({1, 2}, {5, 6})}, {"at", index(1)}}, &states);
  const Numbers before = numbers_in(states[0].tensor);
  EXPECT_EQ(before, (Numbers{0, 10, 12, 0, 0, 0, 0, 0}));
  EXPECT_THROW(model.predict("", {{"x", halves_of({1, 2}, {7, 8})}, {"at", index(2)}}, &states), Error);
  EXPECT_EQ(numbers_in(states[0].tensor), before);
}

TEST(States, OfAnotherModelAndInputsThatDoNotFitAreRefused) {
  LoadedModel model(make_package(two_writes(false)), 1, best_kernels());
  StateTensors states = model.make_states("");
  const Tensor x = halves_of({1, 2}, {5, 6});
  EXPECT_THROW(model.predict("", {{"x", x}}, nullptr), Error);
  EXPECT_THROW(model.predict("", {}, &states), Error);
  EXPECT_THROW(model.predict("", {{"y", x}}, &states), Error);
  EXPECT_THROW(model.predict("", {{"x", halves_of({2}, {5, 6})}}, &states), Error);
  EXPECT_THROW(model.predict("", {{"x", zeroed_tensor(DataType::int32, {1, 2})}}, &states), Error);
  StateTensors other = {{"cache", halves_of({2, 3}, {0, 0, 0, 0, 0, 0})}};
  EXPECT_THROW(model.predict("", {{"x", x}}, &other), Error);
  StateTensors none;
  EXPECT_THROW(model.predict("", {{"x", x}}, &none), Error);
  EXPECT_EQ(numbers_in(states[0].tensor), Numbers(8, 0.0f));
}

TEST(States, AreSharedByFunctions) {
  std::vector<FunctionBuilder> functions;
  functions.push_back(two_writes(false));
  FunctionBuilder sum("sum");
  const auto cache = sum.state("cache", DataType::fp16, {2, 4});
  sum.output(sum.op("reduce_sum", {{"x", sum.read_state(cache)}}, tensor(DataType::fp16, {})), "total");
  functions.push_back(std::move(sum));
  LoadedModel model(make_package(std::move(functions)), 1, best_kernels());
  StateTensors states = model.make_states("main");
  model.predict("main", {{"x", halves_of({1, 2}, {5, 6})}}, &states);
  EXPECT_EQ(numbers_in(model.predict("sum", {}, &states)[0].tensor), (Numbers{22}));
}

// cache * (1 - sum of the mask's columns) + mask x rows, as exports for processors without addresses write.
FunctionBuilder masked_write(bool sums_first) {
  FunctionBuilder f("main");
  const ValueType type = tensor(DataType::fp16, {1, 1, 4, 3}), column = tensor(DataType::fp16, {1, 1, 4, 1});
  const auto rows = f.input("rows", DataType::fp16, {1, 1, 2, 3}),
             mask = f.input("mask", DataType::fp16, {1, 1, 4, 2});
  const auto cache = f.state("cache", DataType::fp16, {1, 1, 4, 3});
  const auto taken = f.op("reduce_sum", {{"x", mask}, {"axes", {3}}, {"keep_dims", true}}, column);
  const auto kept = f.op("sub", {{"x", half(1.0f)}, {"y", taken}}, column);
  const auto old = f.op("mul", {{"x", kept}, {"y", f.read_state(cache)}}, type);
  const auto chosen =
      f.op("matmul", {{"x", mask}, {"y", rows}, {"transpose_x", false}, {"transpose_y", false}}, type);
  f.write_state(cache,
                f.op("add", {{"x", sums_first ? chosen : old}, {"y", sums_first ? old : chosen}}, type));
  f.output(f.op("reduce_sum", {{"x", f.read_state(cache)}, {"axes", {3}}}, tensor(DataType::fp16, {1, 1, 4})),
           "sums");
  return f;
}

TEST(States, RowsThatAMaskChoosesAreWrittenWhereTheyLie) {
  for (const bool sums_first : {false, true}) {
    LoadedModel model(make_package(masked_write(sums_first)), 1, best_kernels());
    StateTensors states = model.make_states("");
    const std::byte* place = states[0].tensor.data.get();
    const auto write = [&](const Numbers& rows, const Numbers& mask) {
      return numbers_in(
          model
              .predict("", {{"rows", halves_of({1, 1, 2, 3}, rows)}, {"mask", halves_of({1, 1, 4, 2}, mask)}},
                       &states)[0]
              .tensor);
    };
    EXPECT_EQ(write({1, 2, 3, 4, 5, 6}, {1, 0, 0, 1, 0, 0, 0, 0}), (Numbers{6, 15, 0, 0}));
    // Slot 1 again, slot 3; and a row that is kept by halves, with half of another.
    EXPECT_EQ(write({7, 7, 7, 8, 8, 8}, {0, 0, 1, 0, 0, 0, 0, 1}), (Numbers{6, 21, 0, 24}));
    EXPECT_EQ(write({2, 2, 2, 0, 0, 0}, {0.5, 0, 0, 0, 0, 0, 0, 0}), (Numbers{6, 21, 0, 24}));
    EXPECT_EQ(numbers_in(states[0].tensor), (Numbers{1.5, 2, 2.5, 7, 7, 7, 0, 0, 0, 8, 8, 8}));
    EXPECT_EQ(states[0].tensor.data.get(), place);
    EXPECT_EQ(model.executor("").report().state_bytes_copied, 0);
  }
}

TEST(States, ACallThatFailsBehindAMaskedWriteChangesNothing) {
  LoadedModel model(make_package(masked_write(false)), 1, best_kernels());
  StateTensors states = model.make_states("");
  const std::vector<NamedTensor> inputs = {{"rows", halves_of({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6})},
                                           {"mask", halves_of({1, 1, 4, 2}, {1, 0, 0, 0, 0, 0, 0, 1})}};
  int steps = 0;
  model.predict("", inputs, &states, [&] { return ++steps > 0; });
  const Numbers before = numbers_in(states[0].tensor);
  const std::vector<NamedTensor> others = {{"rows", halves_of({1, 1, 2, 3}, {9, 9, 9, 9, 9, 9})}, inputs[1]};
  for (int most = 0; most < steps; ++most) {
    int asked = 0;
    EXPECT_THROW(model.predict("", others, &states, [&] { return asked++ < most; }), Error);
    EXPECT_EQ(numbers_in(states[0].tensor), before) << most;
  }
}

}  // namespace
}  // namespace kvtide::coreml
