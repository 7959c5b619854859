// Operations against small literal cases, each as a program of its own.
#include <gtest/gtest.h>

#include "coreml/run/convert.h"
#include "coreml/run/loaded.h"
#include "coreml/write/builder.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_numbers.h"

namespace kvtide::coreml {
namespace {

struct Case {
  DataType dtype = DataType::fp32;
  Shape shape;
  Numbers numbers;
};

Tensor tensor_with(const Case& given) {
  Tensor result = zeroed_tensor(given.dtype, given.shape);
  store(best_kernels(), given.numbers.data(), static_cast<std::int64_t>(given.numbers.size()), result, 0);
  return result;
}

Numbers numbers_of(const Tensor& tensor) {
  Numbers numbers(static_cast<std::size_t>(tensor.elements()));
  load(best_kernels(), tensor, 0, tensor.elements(), numbers.data());
  return numbers;
}

struct OperandCase {
  std::string name;
  Case value;
};

// The first result of one operation whose tensors are inputs of the program, and whose `constants` are constants.
Tensor ran(const std::string& type, const std::vector<OperandCase>& inputs, GivenList constants = {},
           DataType result = DataType::fp32, std::size_t results = 1) {
  FunctionBuilder f("main");
  GivenList given;
  std::vector<NamedTensor> values;
  for (const OperandCase& each : inputs) {
    given.push_back({each.name, f.input("in_" + each.name, each.value.dtype, each.value.shape)});
    Case outside = each.value;
    if (outside.shape.empty()) outside.shape = {1};  // as descriptions have a single number
    values.push_back({"in_" + each.name, tensor_with(outside)});
  }
  for (auto& each : constants) given.push_back(each);
  const auto names = f.op_many(type, given, std::vector<ValueType>(results, tensor(result, {kUnknown})));
  f.output(names[0]);
  LoadedModel model(make_package(std::move(f)), 2, best_kernels());
  return model.predict("", values, nullptr)[0].tensor;
}

void expect(const Tensor& result, const Shape& shape, const Numbers& numbers, float tolerance = 0.0f) {
  EXPECT_EQ(result.shape, shape);
  const Numbers got = numbers_of(result);
  ASSERT_EQ(got.size(), numbers.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], numbers[i], tolerance) << i;
}

Case f32(Shape shape, Numbers numbers) { return {DataType::fp32, std::move(shape), std::move(numbers)}; }
Case f16(Shape shape, Numbers numbers) { return {DataType::fp16, std::move(shape), std::move(numbers)}; }
Case i32(Shape shape, Numbers numbers) { return {DataType::int32, std::move(shape), std::move(numbers)}; }
Case flags_of(Shape shape, Numbers numbers) {
  return {DataType::boolean, std::move(shape), std::move(numbers)};
}

TEST(Operations, BroadcastTheirTwoOperands) {
  const Case x = f32({2, 1}, {1, 10}), y = f32({3}, {1, 2, 4});
  expect(ran("add", {{"x", x}, {"y", y}}), {2, 3}, {2, 3, 5, 11, 12, 14});
  expect(ran("sub", {{"x", x}, {"y", y}}), {2, 3}, {0, -1, -3, 9, 8, 6});
  expect(ran("mul", {{"x", x}, {"y", y}}), {2, 3}, {1, 2, 4, 10, 20, 40});
  expect(ran("real_div", {{"x", x}, {"y", y}}), {2, 3}, {1, 0.5f, 0.25f, 10, 5, 2.5f});
  expect(ran("maximum", {{"x", x}, {"y", y}}), {2, 3}, {1, 2, 4, 10, 10, 10});
  expect(ran("minimum", {{"x", x}, {"y", y}}), {2, 3}, {1, 1, 1, 1, 2, 4});
  expect(ran("pow", {{"x", x}, {"y", y}}), {2, 3}, {1, 1, 1, 10, 100, 10000}, 0.01f);
  EXPECT_THROW(ran("add", {{"x", f32({2}, {1, 2})}, {"y", y}}), Error);
}

TEST(Operations, DivideWholeNumbersAsShapesDo) {
  const Case x = i32({4}, {7, -7, 7, -7}), y = i32({4}, {2, 2, -2, -2});
  expect(ran("floor_div", {{"x", x}, {"y", y}}, {}, DataType::int32), {4}, {3, -4, -4, 3});
  expect(ran("mod", {{"x", x}, {"y", y}}, {}, DataType::int32), {4}, {1, 1, -1, -1});
  expect(ran("real_div", {{"x", i32({1}, {12})}, {"y", i32({1}, {3})}}, {}, DataType::int32), {1}, {4});
}

TEST(Operations, RoundResultsToTheDeclaredType) {
  expect(ran("add", {{"x", f16({1}, {2048})}, {"y", f16({1}, {1})}}, {}, DataType::fp16), {1}, {2048});
  expect(ran("cast", {{"x", f32({3}, {1.9f, -1.9f, 300})}}, {{"dtype", text("int32")}}, DataType::int32), {3},
         {1, -1, 300});
  expect(ran("cast", {{"x", i32({2}, {0, 5})}}, {{"dtype", text("bool")}}, DataType::boolean), {2}, {0, 1});
}

TEST(Operations, CompareAndSelect) {
  const Case x = i32({3}, {1, 2, 3}), y = i32({}, {2});
  expect(ran("equal", {{"x", x}, {"y", y}}, {}, DataType::boolean), {3}, {0, 1, 0});
  expect(ran("not_equal", {{"x", x}, {"y", y}}, {}, DataType::boolean), {3}, {1, 0, 1});
  expect(ran("greater", {{"x", x}, {"y", y}}, {}, DataType::boolean), {3}, {0, 0, 1});
  expect(ran("greater_equal", {{"x", x}, {"y", y}}, {}, DataType::boolean), {3}, {0, 1, 1});
  expect(ran("less", {{"x", x}, {"y", y}}, {}, DataType::boolean), {3}, {1, 0, 0});
  expect(ran("less_equal", {{"x", x}, {"y", y}}, {}, DataType::boolean), {3}, {1, 1, 0});
  expect(
      ran("logical_and", {{"x", flags_of({2}, {1, 1})}, {"y", flags_of({2}, {1, 0})}}, {}, DataType::boolean),
      {2}, {1, 0});
  expect(ran("logical_not", {{"x", flags_of({2}, {1, 0})}}, {}, DataType::boolean), {2}, {0, 1});
  // Declared a single number, but the condition's shape counts.
  expect(ran("select", {{"cond", flags_of({2}, {1, 0})}, {"a", f32({}, {5})}, {"b", f32({}, {7})}}), {2},
         {5, 7});
}

TEST(Operations, OfOneTensor) {
  const Case x = f32({3}, {-1, 0, 2});
  expect(ran("relu", {{"x", x}}), {3}, {0, 0, 2});
  expect(ran("abs", {{"x", x}}), {3}, {1, 0, 2});
  expect(ran("sign", {{"x", x}}), {3}, {-1, 0, 1});
  expect(ran("square", {{"x", x}}), {3}, {1, 0, 4});
  expect(ran("sigmoid", {{"x", x}}), {3}, {0.268941f, 0.5f, 0.880797f}, 1e-6f);
  expect(ran("silu", {{"x", x}}), {3}, {-0.268941f, 0, 1.761594f}, 1e-6f);
  expect(ran("tanh", {{"x", x}}), {3}, {-0.761594f, 0, 0.964028f}, 1e-6f);
  expect(ran("softplus", {{"x", x}}), {3}, {0.313262f, 0.693147f, 2.126928f}, 1e-6f);
  expect(ran("gelu", {{"x", x}}, {{"mode", text("EXACT")}}), {3}, {-0.158655f, 0, 1.954500f}, 1e-6f);
  expect(ran("gelu", {{"x", x}}, {{"mode", text("TANH_APPROXIMATION")}}), {3}, {-0.158808f, 0, 1.954598f},
         1e-6f);
  expect(ran("clip", {{"x", x}}, {{"alpha", number(-0.5f)}, {"beta", number(1.0f)}}), {3}, {-0.5f, 0, 1});
  expect(ran("rsqrt", {{"x", f32({1}, {4})}}, {{"epsilon", number(0.0f)}}), {1}, {0.5f});
  expect(ran("inverse", {{"x", f32({1}, {4})}}, {{"epsilon", number(1.0f)}}), {1}, {0.2f}, 1e-7f);
}

TEST(Operations, LayElementsOutDifferently) {
  const Case x = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  expect(ran("transpose", {{"x", x}}, {{"perm", {1, 0}}}), {3, 2}, {1, 4, 2, 5, 3, 6});
  expect(ran("reshape", {{"x", x}}, {{"shape", {3, -1}}}), {3, 2}, {1, 2, 3, 4, 5, 6});
  expect(ran("reshape", {{"x", x}}, {{"shape", {1, 2, 0}}}), {1, 2, 3}, {1, 2, 3, 4, 5, 6});
  expect(ran("expand_dims", {{"x", x}}, {{"axes", {0, -1}}}), {1, 2, 3, 1}, {1, 2, 3, 4, 5, 6});
  expect(ran("tile", {{"x", x}}, {{"reps", {2, 1}}}), {4, 3}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  expect(ran("reverse", {{"x", x}}, {{"axes", {1}}}), {2, 3}, {3, 2, 1, 6, 5, 4});
  expect(ran("band_part", {{"x", f32({2, 2}, {1, 2, 3, 4})}}, {{"lower", -1}, {"upper", 0}}), {2, 2},
         {1, 0, 3, 4});
  expect(ran("pad", {{"x", f32({2}, {1, 2})}},
             {{"pad", {1, 2}}, {"mode", text("constant")}, {"constant_val", number(9.0f)}}),
         {5}, {9, 1, 2, 9, 9});
  expect(ran("shape", {{"x", x}}, {}, DataType::int32), {2}, {2, 3});
  expect(ran("one_hot", {{"indices", i32({2}, {1, 0})}}, {{"one_hot_vector_size", 3}}), {2, 3},
         {0, 1, 0, 1, 0, 0});
  expect(ran("split", {{"x", x}}, {{"split_sizes", {1, 2}}, {"axis", 1}}, DataType::fp32, 2), {2, 1}, {1, 4});
  EXPECT_THROW(ran("reshape", {{"x", x}}, {{"shape", {4, 2}}}), Error);
}

TEST(Operations, SliceAsNumpyDoes) {
  const Case x = f32({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  expect(ran("slice_by_index", {{"x", x}}, {{"begin", {0, 1}}, {"end", {2, 3}}}), {2, 2}, {1, 2, 5, 6});
  expect(ran("slice_by_index", {{"x", x}},
             {{"begin", {1, 0}},
              {"end", {9, 0}},
              {"end_mask", flags({false, true})},
              {"squeeze_mask", flags({true, false})}}),
         {4}, {4, 5, 6, 7});
  expect(ran("slice_by_index", {{"x", x}},
             {{"begin", {0, -1}}, {"end", {2, 0}}, {"stride", {1, -2}}, {"end_mask", flags({false, true})}}),
         {2, 2}, {3, 1, 7, 5});
  expect(ran("slice_by_size", {{"x", x}}, {{"begin", {0, 2}}, {"size", {1, -1}}}), {1, 2}, {2, 3});
  expect(
      ran("slice_update", {{"x", x}, {"update", f32({2, 1}, {8, 9})}}, {{"begin", {0, 2}}, {"end", {2, 3}}}),
      {2, 4}, {0, 1, 8, 3, 4, 5, 9, 7});
  EXPECT_THROW(ran("slice_update", {{"x", x}, {"update", f32({2, 2}, {8, 9, 8, 9})}},
                   {{"begin", {0, 3}}, {"end", {2, 5}}}),
               Error);
}

TEST(Operations, LookUpAndWriteByIndex) {
  const Case x = f32({3, 2}, {0, 1, 2, 3, 4, 5});
  expect(ran("gather", {{"x", x}, {"indices", i32({2}, {2, -3})}}, {{"axis", 0}}), {2, 2}, {4, 5, 0, 1});
  expect(ran("gather", {{"x", x}, {"indices", i32({1}, {1})}}, {{"axis", 1}}), {3, 1}, {1, 3, 5});
  expect(ran("gather_along_axis", {{"x", x}, {"indices", i32({1, 2}, {2, 0})}}, {{"axis", 0}}), {1, 2},
         {4, 1});
  expect(ran("gather_nd", {{"x", x}, {"indices", i32({2, 2}, {0, 1, 2, 0})}}), {2}, {1, 4});
  const Case updates = f32({1, 2}, {10, 20});
  expect(ran("scatter", {{"data", x}, {"indices", i32({1}, {1})}, {"updates", updates}},
             {{"axis", 0}, {"mode", text("add")}}),
         {3, 2}, {0, 1, 12, 23, 4, 5});
  expect(ran("scatter_along_axis", {{"data", x}, {"indices", i32({1, 2}, {0, 2})}, {"updates", updates}},
             {{"axis", 0}, {"mode", text("update")}}),
         {3, 2}, {10, 1, 2, 3, 4, 20});
  expect(ran("scatter_nd", {{"data", x}, {"indices", i32({1, 1}, {2})}, {"updates", updates}},
             {{"mode", text("update")}}),
         {3, 2}, {0, 1, 2, 3, 10, 20});
  EXPECT_THROW(ran("gather", {{"x", x}, {"indices", i32({1}, {3})}}, {{"axis", 0}}), Error);
}

TEST(Operations, ReduceAndOrder) {
  const Case x = f32({2, 3}, {3, 1, 2, 6, 5, 4});
  expect(ran("reduce_mean", {{"x", x}}, {{"axes", {1}}, {"keep_dims", true}}), {2, 1}, {2, 5});
  expect(ran("reduce_sum", {{"x", x}}, {{"axes", {0}}}), {3}, {9, 6, 6});
  expect(ran("reduce_max", {{"x", x}}, {{"axes", {-1}}}), {2}, {3, 6});
  expect(ran("reduce_l2_norm", {{"x", f32({2}, {3, 4})}}, {{"axes", {0}}, {"keep_dims", true}}), {1}, {5});
  expect(ran("reduce_argmax", {{"x", x}}, {{"axis", 1}}, DataType::int32), {2}, {0, 0});
  expect(ran("topk", {{"x", x}}, {{"k", 2}, {"axis", 1}}, DataType::fp32, 2), {2, 2}, {3, 2, 6, 5});
  expect(ran("argsort", {{"x", x}}, {{"axis", 1}, {"ascending", true}}, DataType::int32), {2, 3},
         {1, 2, 0, 2, 1, 0});
  expect(ran("cumsum", {{"x", x}}, {{"axis", 1}}), {2, 3}, {3, 4, 6, 6, 11, 15});
  expect(ran("cumsum", {{"x", x}}, {{"axis", 1}, {"exclusive", true}, {"reverse", true}}), {2, 3},
         {3, 2, 0, 9, 4, 0});
  expect(ran("softmax", {{"x", f32({2, 2}, {0, 0, 1, 3})}}, {{"axis", 0}}), {2, 2},
         {0.268941f, 0.047426f, 0.731059f, 0.952574f}, 1e-6f);
  expect(ran("layer_norm", {{"x", f32({1, 2}, {1, 3})}}, {{"axes", {1}}, {"epsilon", number(0.0f)}}), {1, 2},
         {-1, 1}, 1e-6f);
}

TEST(Operations, Multiply) {
  const Case x = f32({1, 2}, {1, 2}), y = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  expect(ran("matmul", {{"x", x}, {"y", y}}), {1, 3}, {9, 12, 15});
  expect(ran("matmul", {{"x", x}, {"y", f32({3, 2}, {1, 4, 2, 5, 3, 6})}}, {{"transpose_y", true}}), {1, 3},
         {9, 12, 15});
  expect(ran("matmul", {{"x", x}}, {{"y", floats({2, 3}, Numbers{1, 2, 3, 4, 5, 6})}}), {1, 3}, {9, 12, 15});
  expect(
      ran("linear", {{"x", x}},
          {{"weight", floats({3, 2}, Numbers{1, 4, 2, 5, 3, 6})}, {"bias", floats({3}, Numbers{1, 1, 1})}}),
      {1, 3}, {10, 13, 16});
  expect(ran("conv", {{"x", f32({1, 2, 2}, {1, 10, 2, 20})}}, {{"weight", floats({1, 2, 1}, Numbers{3, 4})}}),
         {1, 1, 2}, {11, 110});
  expect(ran("conv", {{"x", f32({1, 1, 3}, {1, 2, 3})}},
             {{"weight", floats({1, 1, 2}, Numbers{1, 10})}, {"pad_type", text("custom")}, {"pad", {1, 0}}}),
         {1, 1, 3}, {10, 21, 32});
  const auto scaled = ran(
      "scaled_dot_product_attention",
      {{"query", f32({1, 1, 1}, {0})}, {"key", f32({1, 2, 1}, {1, 2})}, {"value", f32({1, 2, 1}, {4, 8})}});
  expect(scaled, {1, 1, 1}, {6});
}

TEST(Operations, ThatAreNotThereAreAllListedWhenAModelIsOpened) {
  FunctionBuilder f("main");
  const auto x = f.input("x", DataType::fp32, {1});
  const auto a = f.op("erfinv", {{"x", x}}, tensor(DataType::fp32, {1}));
  const auto b = f.op("gru", {{"x", a}}, tensor(DataType::fp32, {1}));
  f.output(b);
  try {
    LoadedModel model(make_package(std::move(f)), 1, best_kernels());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(error.message().find("2 operations"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("erfinv"), std::string::npos);
    EXPECT_NE(error.message().find("gru"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvtide::coreml
