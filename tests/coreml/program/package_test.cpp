// Packages of every form, read back as they were written.
#include "coreml/program/package.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "coreml/program/census.h"
#include "coreml/program/mil_printer.h"
#include "coreml/write/package_writer.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_packages.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide::coreml {
namespace {

namespace fs = std::filesystem;
using kvtide::testing::difference;
using kvtide::testing::every_type_function;
using kvtide::testing::every_type_package;
using kvtide::testing::TemporaryFolder;

void put(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

void expect_same_inputs(const Description& written, const Description& read) {
  for (const FunctionDescription& each : written.functions) {
    const FunctionDescription* other = read.function(each.name);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(difference(each.inputs, other->inputs), "");
    EXPECT_EQ(difference(each.states, other->states), "");
  }
}

TEST(CoremlPackage, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  const Package written = every_type_package();
  write_package(written, folder / "a.mlpackage");
  const Package read = open_package((folder / "a.mlpackage") + "/");
  EXPECT_EQ(difference(written.program, read.program), "");
  EXPECT_EQ(read.path, folder / "a.mlpackage");
  EXPECT_EQ(read.files.size(), 2u);
  EXPECT_EQ(read.description.specification, 9);
  EXPECT_EQ(read.description.default_function, "infer");
  EXPECT_EQ(read.description.author, "me");
  EXPECT_EQ(read.description.metadata, written.description.metadata);
  expect_same_inputs(written.description, read.description);
}

TEST(CoremlPackage, ReadsOneFunctionWithItsListsAtTheTop) {
  const TemporaryFolder folder;
  write_package(make_package(every_type_function("main")), folder / "a.mlpackage");
  const Package read = open_package(folder / "a.mlpackage");
  ASSERT_EQ(read.description.functions.size(), 1u);
  EXPECT_EQ(read.description.default_function, "main");
  EXPECT_EQ(read.description.functions[0].inputs.size(), 2u);
  EXPECT_EQ(read.description.functions[0].states.at(0).shape, (Shape{1, 16}));
}

TEST(CoremlPackage, ReadsTheSameProgramAsTextWithItsWeights) {
  const TemporaryFolder folder;
  write_package(every_type_package(), folder / "a.mlpackage");
  const Package package = open_package(folder / "a.mlpackage");
  const std::string text = mil_text(package.program, &package.description);
  put(folder / "b.mlmodelc/model.mil", text);
  fs::copy(folder / "a.mlpackage/Data/com.apple.CoreML/weights", folder / "b.mlmodelc/weights");
  const Package compiled = open_package(folder / "b.mlmodelc");
  EXPECT_EQ(difference(package.program, compiled.program), "");
  EXPECT_EQ(mil_text(compiled.program, &compiled.description), text);
  EXPECT_EQ(compiled.description.specification, 9);
  EXPECT_EQ(compiled.program.functions[0].block.operations[0].line, 5u);
  expect_same_inputs(package.description, compiled.description);
  // The text alone, weights beside it.
  EXPECT_EQ(difference(package.program, open_package(folder / "b.mlmodelc/model.mil").program), "");
}

TEST(CoremlPackage, TakesShapesAndTextsFromMetadata) {
  const TemporaryFolder folder;
  put(folder / "a.mlmodelc/model.mil", R"(program(1.0)
{
  func main<ios16>(tensor<int32, [1, ?]> ids, tensor<fp32, [?]> x) {
    tensor<fp32, [?]> y = identity(x = x)[name = tensor<string, []>("y")];
  } -> (y);
})");
  put(folder / "a.mlmodelc/metadata.json", R"([{"specificationVersion": 7, "author": "me", "version": "2",
    "userDefinedMetadata": {"tokenizer": "gpt2"},
    "inputSchema": [
      {"name": "ids", "shape": "[1, 8]", "shapeRange": "[[1, 1], [1, -1]]", "isOptional": "0"},
      {"name": "x", "shape": "[4]", "enumeratedShapes": "[[4], [8]]", "isOptional": "1"}],
    "outputSchema": [{"name": "y", "shape": "[]"}]}])");
  const Description read = open_package(folder / "a.mlmodelc").description;
  EXPECT_EQ(read.specification, 7);
  EXPECT_EQ(read.author, "me");
  EXPECT_EQ(read.version, "2");
  EXPECT_EQ(read.metadata.at(0).second, "gpt2");
  const auto& inputs = read.functions.at(0).inputs;
  EXPECT_EQ(inputs.at(0).shape, (Shape{1, 8}));
  EXPECT_EQ(inputs.at(0).ranges.at(1).most, kUnknown);
  EXPECT_EQ(inputs.at(1).shapes, (std::vector<Shape>{{4}, {8}}));
  EXPECT_TRUE(inputs.at(1).optional);
  EXPECT_EQ(read.functions[0].outputs.at(0).shape, (Shape{kUnknown}));
}

TEST(CoremlPackage, ReadsThePipelinesModels) {
  const TemporaryFolder folder;
  Package pipeline;
  pipeline.description = make_package(every_type_function("main")).description;
  for (int i = 0; i < 2; ++i) pipeline.stages.push_back(make_package(every_type_function("main")));
  write_package(pipeline, folder / "a.mlpackage");
  const Package read = open_package(folder / "a.mlpackage");
  ASSERT_EQ(read.stages.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(difference(pipeline.stages[i].program, read.stages[i].program), "");
}

TEST(CoremlPackage, IdentityIsOfTheBytes) {
  const TemporaryFolder folder;
  write_package(every_type_package(), folder / "a.mlpackage");
  write_package(every_type_package(), folder / "b.mlpackage");
  const std::string identity = identity_of(open_package(folder / "a.mlpackage"));
  EXPECT_EQ(identity.size(), 64u);
  EXPECT_EQ(identity, identity_of(open_package(folder / "b.mlpackage")));
  const std::string weights = folder / "b.mlpackage/Data/com.apple.CoreML/weights/weight.bin";
  std::fstream(weights, std::ios::in | std::ios::out | std::ios::binary).seekp(128).put('!');
  EXPECT_NE(identity, identity_of(open_package(folder / "b.mlpackage")));
}

TEST(CoremlPackage, WeightsLiveAsLongAsTheirValues) {
  const TemporaryFolder folder;
  write_package(every_type_package(), folder / "a.mlpackage");
  Value kept;
  {
    const Package read = open_package(folder / "a.mlpackage");
    for_each_operation(read.program.functions[0].block, [&](const Operation& operation) {
      if (operation.outputs.size() == 1 && operation.outputs[0].name == "large_fp16")
        kept = *operation.attribute("val");
    });
  }
  EXPECT_TRUE(kept.from_blob);
  EXPECT_EQ(kept.blob_file, "@model_path/weights/weight.bin");
  EXPECT_EQ(difference(kept, kvtide::testing::filled(DataType::fp16, {3, 8})), "");
}

TEST(CoremlPackage, CountsASharedWeightOnce) {
  const TemporaryFolder folder;
  FunctionBuilder f("main");
  const auto x = f.input("x", DataType::fp16, {1, 16});
  const Value weight = kvtide::testing::filled(DataType::fp16, {16, 16});
  const ValueType row = tensor(DataType::fp16, {1, 16});
  const auto first = f.op("linear", {{"x", x}, {"weight", f.constant("w1", weight)}}, row);
  const auto second = f.op("linear", {{"x", first}, {"weight", f.constant("w2", weight)}}, row);
  f.output(second, "y");
  write_package(make_package(std::move(f)), folder / "a.mlpackage");
  const Package read = open_package(folder / "a.mlpackage");
  const auto weights = weights_by_type(read);
  EXPECT_EQ(weights.at(DataType::fp16).count, 1);
  EXPECT_EQ(weights.at(DataType::fp16).bytes, 512);
  EXPECT_EQ(operations_by_type(read.program.functions[0]).at("linear"), 2);
}

TEST(CoremlPackage, SaysWhatIsNoPackage) {
  const TemporaryFolder folder;
  put(folder / "empty/other", "x");
  for (const char* name : {"missing", "empty"}) {
    try {
      open_package(folder / name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_TRUE(error.message().starts_with((folder / name) + ": ")) << error.message();
    }
  }
}

}  // namespace
}  // namespace kvtide::coreml
