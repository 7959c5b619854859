// Pipelines: they compute what their stages compute one after another, share states by name, and change all or nothing.
#include <gtest/gtest.h>

#include "coreml/program/pipeline.h"
#include "coreml/run/loaded.h"
#include "coreml/write/builder.h"
#include "coreml/write/package_writer.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_numbers.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide::coreml {
namespace {

const ValueType kRow = tensor(DataType::fp16, {1, 2});

Feature feature(std::string name, DataType dtype, Shape shape) {
  Feature made;
  made.name = std::move(name);
  made.dtype = dtype;
  made.shape = std::move(shape);
  return made;
}

// total += x; y = total times `factor`, in the type that is asked for.
Package adding(const std::string& x, const std::string& y, float factor, DataType dtype = DataType::fp16) {
  FunctionBuilder f("main");
  const auto given = f.input(x, dtype, {1, 2});
  const auto total = f.state("total", DataType::fp16, {1, 2});
  const auto half_given = f.op("cast", {{"x", given}, {"dtype", text("fp16")}}, kRow);
  f.write_state(total, f.op("add", {{"x", f.read_state(total)}, {"y", half_given}}, kRow));
  f.output(f.op("mul", {{"x", f.read_state(total)}, {"y", half(factor)}}, kRow), y);
  return make_package(std::move(f));
}

Package pipeline_of(std::vector<Package> stages, const std::string& in, const std::vector<std::string>& out) {
  Package result;
  result.path = "a.mlpackage";
  result.description.specification = 9;
  FunctionDescription about;
  about.name = "main";
  about.inputs = {feature(in, DataType::fp16, {1, 2})};
  for (const std::string& name : out) about.outputs.push_back(feature(name, DataType::fp16, {1, 2}));
  result.description.functions = {about};
  result.description.default_function = "main";
  result.stages = std::move(stages);
  return result;
}

Numbers named(const std::vector<NamedTensor>& out, const std::string& name) {
  for (const NamedTensor& each : out)
    if (each.name == name) return numbers_in(each.tensor);
  ADD_FAILURE() << "no output " << name;
  return {};
}

TEST(Pipelines, DoWhatTheirStagesDoAndShareStatesByName) {
  LoadedModel model(pipeline_of({adding("x", "y", 2), adding("y", "z", 3)}, "x", {"y", "z"}), 1,
                    best_kernels());
  ASSERT_EQ(model.described("").states.size(), 1u);
  StateTensors states = model.make_states("");
  const auto first = model.predict("", {{"x", halves_of({1, 2}, {1, 2})}}, &states);
  EXPECT_EQ(named(first, "y"), (Numbers{2, 4}));   // total is x
  EXPECT_EQ(named(first, "z"), (Numbers{9, 18}));  // total is x + y
  EXPECT_EQ(numbers_in(states[0].tensor), (Numbers{3, 6}));
  const auto second = model.predict("", {{"x", halves_of({1, 2}, {1, 1})}}, &states);
  EXPECT_EQ(named(second, "y"), (Numbers{8, 14}));
}

TEST(Pipelines, InPipelinesAreStagesToo) {
  Package inner = pipeline_of({adding("x", "y", 2)}, "x", {"y"});
  LoadedModel model(pipeline_of({std::move(inner), adding("y", "z", 3)}, "x", {"z"}), 1, best_kernels());
  StateTensors states = model.make_states("");
  EXPECT_EQ(named(model.predict("", {{"x", halves_of({1, 2}, {1, 2})}}, &states), "z"), (Numbers{9, 18}));
}

TEST(Pipelines, ANumberIsGivenInTheTypeThatTheNextStageTakes) {
  LoadedModel model(pipeline_of({adding("x", "y", 2), adding("y", "z", 3, DataType::fp32)}, "x", {"z"}), 1,
                    best_kernels());
  StateTensors states = model.make_states("");
  EXPECT_EQ(named(model.predict("", {{"x", halves_of({1, 2}, {1, 2})}}, &states), "z"), (Numbers{9, 18}));
}

TEST(Pipelines, ACallThatIsCancelledInALaterStageChangesNothing) {
  LoadedModel model(pipeline_of({adding("x", "y", 2), adding("y", "z", 3)}, "x", {"z"}), 1, best_kernels());
  StateTensors states = model.make_states("");
  const std::vector<NamedTensor> inputs = {{"x", halves_of({1, 2}, {1, 2})}};
  int steps = 0;
  model.predict("", inputs, &states, [&] { return ++steps > 0; });
  for (int most = 0; most < steps; ++most) {
    int asked = 0;
    EXPECT_THROW(model.predict("", inputs, &states, [&] { return asked++ < most; }), Error);
    EXPECT_EQ(numbers_in(states[0].tensor), (Numbers{3, 6})) << most;
  }
}

TEST(Pipelines, AreThoseOfTheirFile) {
  const testing::TemporaryFolder folder;
  write_package(pipeline_of({adding("x", "y", 2), adding("y", "z", 3)}, "x", {"z"}), folder / "a.mlpackage");
  LoadedModel model(open_package(folder / "a.mlpackage"), 1, best_kernels());
  StateTensors states = model.make_states("");
  EXPECT_EQ(named(model.predict("", {{"x", halves_of({1, 2}, {1, 2})}}, &states), "z"), (Numbers{9, 18}));
}

// coremltools made it: two linear layers.
TEST(Pipelines, OfCoremltoolsRun) {
  const Package read = open_package(std::string(KVTIDE_GOLDENS) + "/coreml/pipeline.mlpackage");
  const std::vector<NamedTensor> x = {{"x", halves_of({1, 8}, {1, -2, 3, -4, 5, -6, 7, -8})}};
  LoadedModel whole(read, 1, best_kernels()), first(read.stages.at(0), 1, best_kernels()),
      second(read.stages.at(1), 1, best_kernels());
  const Numbers z = named(whole.predict("", x, nullptr), "z");
  EXPECT_EQ(z.size(), 32u);
  EXPECT_EQ(z, named(second.predict("", first.predict("", x, nullptr), nullptr), "z"));
}

std::string refusal(const Package& pipeline) {
  try {
    as_one_program(pipeline);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_format);
    return error.what();
  }
  return "none";
}

TEST(Pipelines, ThatDoNotFitTogetherAreRefused) {
  const auto stages = [](const char* takes) {
    return std::vector<Package>{adding("x", "y", 2), adding(takes, "z", 3)};
  };
  EXPECT_NE(refusal(pipeline_of(stages("w"), "x", {"z"}))
                .find("models[1]: takes 'w', which no stage before it gives"),
            std::string::npos);
  EXPECT_NE(refusal(pipeline_of(stages("y"), "x", {"v"})).find("'v' is what no stage of the pipeline gives"),
            std::string::npos);
  FunctionBuilder other("main");
  const auto y = other.input("y", DataType::fp16, {1, 2});
  const auto total = other.state("total", DataType::fp16, {1, 3});
  other.output(
      other.op("reduce_sum", {{"x", other.read_state(total)}, {"axes", {1}}}, tensor(DataType::fp16, {1})),
      "z");
  const Package clash = pipeline_of({adding("x", "y", 2), make_package(std::move(other))}, "x", {"z"});
  EXPECT_NE(refusal(clash).find("keeps state 'total', which is something else"), std::string::npos);
  FunctionBuilder wide("main");
  wide.output(
      wide.op("relu", {{"x", wide.input("y", DataType::fp16, {1, 2, 1})}}, tensor(DataType::fp16, {1, 2, 1})),
      "z");
  const Package ranks = pipeline_of({adding("x", "y", 2), make_package(std::move(wide))}, "x", {"z"});
  EXPECT_NE(refusal(ranks).find("takes 'y' with 3 axes, and is given 2"), std::string::npos);
}

}  // namespace
}  // namespace kvtide::coreml
