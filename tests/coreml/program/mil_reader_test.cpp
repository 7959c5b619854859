// MIL text: every way in which numbers, texts, types and blocks stand in it.
#include "coreml/program/mil_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "coreml/program/mil_printer.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_packages.h"

namespace kvtide::coreml {
namespace {

using kvtide::testing::difference;

Program read(const std::string& body) {
  WeightFiles weights("/nowhere");
  return read_mil("program(1.3)\n{ func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> s) {\n" +
                      body + "\n} -> (x); }",
                  "a.mil", weights)
      .program;
}

// The only operation, a const.
Value constant(const std::string& value) {
  return *read("tensor<fp16, [1]> c = const()[name = string(\"c\"), val = " + value + "];")
              .functions[0]
              .block.operations[0]
              .attribute("val");
}

template <class T>
std::vector<T> numbers(const std::string& value) {
  const Value found = constant(value);
  std::vector<T> out(found.bytes.size() / sizeof(T));
  std::memcpy(out.data(), found.bytes.data(), found.bytes.size());
  return out;
}

TEST(MilReader, TakesNumbersInEverySpelling) {
  EXPECT_EQ(numbers<std::uint16_t>("tensor<fp16, [6]>([0x1p+0, -0x1.8p-1, 0.5, -2, inf, -inf])"),
            (std::vector<std::uint16_t>{0x3c00, 0xba00, 0x3800, 0xc000, 0x7c00, 0xfc00}));
  EXPECT_EQ(numbers<float>("tensor<fp32, [4]>([0x1.4f8b58p-17, 1e-05, -0X1P+3, +2.5])"),
            (std::vector<float>{0x1.4f8b58p-17f, 1e-05f, -8.0f, 2.5f}));
  EXPECT_EQ(numbers<float>("fp32(-0x1.99999ap-4)"), (std::vector<float>{-0.1f}));
  EXPECT_TRUE(std::isnan(numbers<float>("fp32(nan)").at(0)));
  EXPECT_EQ(numbers<double>("fp64(-1e-300)"), (std::vector<double>{-1e-300}));
  EXPECT_EQ(numbers<std::int32_t>("tensor<int32, []>(-2147483648)"), (std::vector<std::int32_t>{INT32_MIN}));
  EXPECT_EQ(numbers<std::uint64_t>("uint64(18446744073709551615)"), (std::vector<std::uint64_t>{UINT64_MAX}));
  EXPECT_EQ(numbers<std::uint8_t>("tensor<bool, [2]>([true, false])"), (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(numbers<std::uint16_t>("bf16(1.0)"), (std::vector<std::uint16_t>{0x3f80}));
}

TEST(MilReader, PacksElementsBelowAByteLowestBitsFirst) {
  EXPECT_EQ(numbers<std::uint8_t>("tensor<uint4, [3]>([1, 2, 15])"), (std::vector<std::uint8_t>{0x21, 0x0f}));
  EXPECT_EQ(numbers<std::uint8_t>("tensor<int4, [2]>([-8, 7])"), (std::vector<std::uint8_t>{0x78}));
  EXPECT_EQ(numbers<std::uint8_t>("tensor<uint3, [3]>([1, 2, 7])"), (std::vector<std::uint8_t>{0xd1, 0x01}));
  EXPECT_EQ(numbers<std::uint8_t>("tensor<uint1, [9]>([1, 0, 0, 0, 0, 0, 0, 0, 1])"),
            (std::vector<std::uint8_t>{0x01, 0x01}));
}

TEST(MilReader, TakesListsInListsAndFlatOnes) {
  const std::vector<std::int32_t> expected{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(numbers<std::int32_t>("tensor<int32, [2, 3]>([[1, 2, 3], [4, 5, 6]])"), expected);
  EXPECT_EQ(numbers<std::int32_t>("tensor<int32, [2, 3]>([1, 2, 3, 4, 5, 6])"), expected);
  EXPECT_EQ(constant("tensor<int32, [0]>([])").bytes.size(), 0u);
  EXPECT_EQ(constant("tensor<int32, [2, 0]>([[], []])").bytes.size(), 0u);
}

TEST(MilReader, ResolvesEscapes) {
  EXPECT_EQ(constant(R"(string("a \"b\" \\ \n\t\x41\xc3\xa9"))").strings.at(0), "a \"b\" \\ \n\tA\xc3\xa9");
  EXPECT_EQ(constant(R"(tensor<string, [2]>(["a, ]", ""]))").strings, (std::vector<std::string>{"a, ]", ""}));
}

TEST(MilReader, TakesListsTuplesAndDictionaries) {
  const Value list = constant("list<tensor<int32, [2]>, ?>([[1, 2], [3, 4]])");
  EXPECT_EQ(list.parts.size(), 2u);
  const Value tuple = constant("tuple<string, int32>((\"a\", 7))");
  EXPECT_EQ(tuple.parts.at(0).strings.at(0), "a");
  const Value dictionary = constant("dict<string, tensor<int32, [?]>>({{\"x\", [1, 128]}, {\"y\", [3]}})");
  ASSERT_EQ(dictionary.dictionary.size(), 2u);
  EXPECT_EQ(dictionary.dictionary[0].value.type.shape, (Shape{2}));
}

TEST(MilReader, TakesBothWaysToMakeSeveralValues) {
  const Program first =
      read("tensor<fp16, [1]> a, tensor<fp16, [1]> b = split(x = x, num_splits = int32(2));");
  const Program second =
      read("(tensor<fp16, [1]> a, tensor<fp16, [1]> b) = split(x = x, num_splits = int32(2));");
  EXPECT_EQ(first.functions[0].block.operations[0].outputs.size(), 2u);
  EXPECT_EQ(difference(first, second), "");
}

TEST(MilReader, TakesOperationsThatMakeNothingAndNamesOfTypes) {
  const Program found = read(
      "fp16 state = const()[val = fp16(1)]; tensor<fp16, [2]> tensor = add(x = x, y = state);\n"
      "write_state(data = tensor, input = s)[name = string(\"w\")];");
  EXPECT_EQ(found.functions[0].block.operations[1].input("y")->bindings.at(0).name, "state");
  EXPECT_TRUE(found.functions[0].block.operations[2].outputs.empty());
  EXPECT_EQ(found.functions[0].block.operations[2].line, 4u);
}

TEST(MilReader, TakesBlocksAndPrintsThem) {
  const Program found = read(R"(bool p = const()[val = bool(true)]; int32 zero = const()[val = int32(0)];
    tensor<fp16, [2]> r = cond(pred = p)[name = string("r")]({
      tensor<fp16, [2]> a = mul(x = x, y = x);
    } -> (a), {
      tensor<fp16, [2]> b = add(x = x, y = x);
    } -> (b));
    int32 last = while_loop(loop_vars = (zero))((int32 i) {
      bool more = less(x = i, y = int32(3));
    } -> (more), (int32 j) {
      int32 next = add(x = j, y = int32(1));
    } -> (next));)");
  const auto& operations = found.functions[0].block.operations;
  ASSERT_EQ(operations.size(), 4u);
  EXPECT_EQ(operations[2].blocks.at(1).operations.at(0).type, "add");
  EXPECT_EQ(operations[3].blocks.at(1).inputs.at(0).name, "j");
  WeightFiles weights("/nowhere");
  const Program again = read_mil(mil_text(found), "b.mil", weights).program;
  EXPECT_EQ(difference(found, again), "");
}

TEST(MilReader, ReadsScalarsAsOldTextHasThem) {
  WeightFiles weights("/nowhere");
  const MilText old = read_mil(R"(program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3304.6.2"}})]
{
    func main<ios16>(tensor<fp32, [1, ?]> x) [FlexibleShapeInformation = tuple<tuple<tensor<string, []>, dict<tensor<string, []>, tensor<int32, [?]>>>>((("DefaultShapes", {{"x", [1, 4]}})))] {
            tensor<int32, []> axis = const()[name = tensor<string, []>("axis"), val = tensor<int32, []>(-1)];
            tensor<fp32, [1, ?]> y = softmax(axis = axis, x = x)[name = tensor<string, []>("y")];
        } -> (y);
})",
                               "old.mil", weights);
  EXPECT_EQ(old.program.build_info.at(0).second, "3304.6.2");
  EXPECT_EQ(old.program.functions.at(0).opset, "ios16");
  EXPECT_EQ(old.attributes.at(0).at(0).name, "FlexibleShapeInformation");
  EXPECT_EQ(old.program.functions[0].block.operations.at(0).attribute("val")->bytes.size(), 4u);
}

TEST(MilReader, SaysLineAndColumn) {
  try {
    read("tensor<fp16, [2]> y = add(x = x, y = )[name = string(\"y\")];");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "a.mil: line 3, column 38: 'add': a name or a constant is missing before ')'");
  }
}

}  // namespace
}  // namespace kvtide::coreml
