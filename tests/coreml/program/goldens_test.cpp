// Packages that coremltools 9.0 wrote (tools/make_coreml_goldens.py).
#include <gtest/gtest.h>

#include <filesystem>

#include "coreml/program/census.h"
#include "coreml/program/mil_printer.h"
#include "tests/coreml/hostile_package.h"

namespace kvtide::testing {
namespace {

const std::string kFolder = std::string(KVTIDE_GOLDENS) + "/coreml/";

TEST(CoremlGoldens, FunctionsShareWeightsAndAState) {
  const cm::Package read = cm::open_package(kFolder + "functions.mlpackage");
  EXPECT_EQ(read.description.specification, 9);
  EXPECT_EQ(read.description.default_function, "infer");
  ASSERT_EQ(read.program.functions.size(), 2u);
  for (const char* name : {"infer", "prefill"}) {
    const cm::FunctionDescription* function = read.description.function(name);
    ASSERT_NE(function, nullptr);
    EXPECT_EQ(function->inputs.at(0).name, "ids");
    EXPECT_EQ(function->inputs[0].ranges.at(1).most, 16);
    EXPECT_EQ(function->states.at(0).shape, (cm::Shape{1, 16, 32}));
    const auto operations = cm::operations_by_type(*read.program.function(name));
    EXPECT_EQ(operations.at("linear"), 2);
    EXPECT_EQ(operations.at("write_state"), 1);
  }
  // 24 x 16, 32 x 16 and 24 x 32 of the layers, and their biases.
  const auto weights = cm::weights_by_type(read);
  EXPECT_EQ(weights.at(DataType::fp16).elements, 24 * 16 + 32 * 16 + 32 + 24 * 32 + 24);
}

TEST(CoremlGoldens, WeightsBelowAByte) {
  const auto weights = cm::weights_by_type(cm::open_package(kFolder + "lut3.mlpackage"));
  EXPECT_EQ(weights.at(DataType::uint3).bytes, (weights.at(DataType::uint3).elements * 3 + 7) / 8);
}

TEST(CoremlGoldens, ConditionsAndLoopsHaveBlocks) {
  const cm::Package read = cm::open_package(kFolder + "loop.mlpackage");
  const auto operations = cm::operations_by_type(read.program.functions.at(0));
  EXPECT_EQ(operations.at("cond"), 1);
  EXPECT_EQ(operations.at("while_loop"), 1);
}

TEST(CoremlGoldens, PipelinesHaveAStageForEachModel) {
  const cm::Package read = cm::open_package(kFolder + "pipeline.mlpackage");
  ASSERT_EQ(read.stages.size(), 2u);
  EXPECT_EQ(read.stages[0].description.functions.at(0).outputs.at(0).name, "y");
  EXPECT_EQ(read.stages[1].description.functions.at(0).inputs.at(0).name, "y");
}

TEST(CoremlGoldens, TheSameProgramsComeBackFromText) {
  for (const char* name : {"functions", "lut3", "loop"}) {
    const cm::Package package = cm::open_package(kFolder + name + ".mlpackage");
    const TemporaryFolder folder;
    put_file(folder / "a.mlmodelc/model.mil", cm::mil_text(package.program, &package.description));
    const std::string weights = kFolder + name + ".mlpackage/Data/com.apple.CoreML/weights";
    if (std::filesystem::exists(weights)) std::filesystem::copy(weights, folder / "a.mlmodelc/weights");
    const cm::Package text = cm::open_package(folder / "a.mlmodelc");
    EXPECT_EQ(difference(package.program, text.program), "") << name;
  }
}

}  // namespace
}  // namespace kvtide::testing
