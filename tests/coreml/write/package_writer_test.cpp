// What a written package holds, byte by byte where other programs rely on it.
#include "coreml/write/package_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "coreml/write/blob_file.h"
#include "coreml/write/builder.h"
#include "kvtide/error.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide::coreml {
namespace {

using kvtide::testing::contents_of;
using kvtide::testing::TemporaryFolder;

constexpr const char* kModelFile = "/Data/com.apple.CoreML/model.mlmodel";
constexpr const char* kWeightFile = "/Data/com.apple.CoreML/weights/weight.bin";

std::vector<float> counting(std::size_t count) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i) / 8;
  return numbers;
}

Package sample() {
  FunctionBuilder f("main");
  const auto x = f.input("x", DataType::fp16, {1, 16});
  const auto cache = f.state("cache", DataType::fp16, {1, 16});
  const auto weight = f.constant("weight", halves({16, 16}, counting(256)));
  const auto old = f.read_state(cache);
  const auto sum = f.op("add", {{"x", old}, {"y", x}}, tensor(DataType::fp16, {1, 16}));
  f.write_state(cache, sum);
  const auto y = f.op("linear", {{"x", sum}, {"weight", weight}}, tensor(DataType::fp16, {1, 16}), "y");
  f.output(y);
  Package package = make_package(std::move(f));
  package.description.metadata = {{"context_length", "16"}};
  return package;
}

template <class T>
T at(const std::string& bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TEST(PackageWriter, LaysOutWeightsByTheRulesOfBlobStorage) {
  const TemporaryFolder folder;
  write_package(sample(), folder / "a.mlpackage");
  const std::string blob = contents_of((folder / "a.mlpackage") + kWeightFile);
  ASSERT_EQ(blob.size(), 64u + 64u + 512u);
  EXPECT_EQ(at<std::uint32_t>(blob, 0), 1u);  // weights
  EXPECT_EQ(at<std::uint32_t>(blob, 4), 2u);  // version
  EXPECT_EQ(at<std::uint32_t>(blob, 64), 0xDEADBEEFu);
  EXPECT_EQ(at<std::uint32_t>(blob, 68), 1u);                // fp16
  EXPECT_EQ(at<std::uint64_t>(blob, 72), 512u);              // bytes
  EXPECT_EQ(at<std::uint64_t>(blob, 80), 128u);              // where they are
  EXPECT_EQ(at<std::uint16_t>(blob, 128 + 2 * 8), 0x3c00u);  // 1.0
}

TEST(PackageWriter, GivesTheSameBytesTwice) {
  const TemporaryFolder folder;
  write_package(sample(), folder / "a.mlpackage");
  write_package(sample(), folder / "b.mlpackage");
  for (const char* file : {"/Manifest.json", kModelFile, kWeightFile})
    EXPECT_EQ(contents_of((folder / "a.mlpackage") + file), contents_of((folder / "b.mlpackage") + file))
        << file;
}

TEST(PackageWriter, RefusesAFolderThatIsThere) {
  const TemporaryFolder folder;
  write_package(sample(), folder / "a.mlpackage");
  EXPECT_THROW(write_package(sample(), folder / "a.mlpackage"), Error);
}

TEST(PackageWriter, LeavesNothingBehindWhenATypeHasNoField) {
  const TemporaryFolder folder;
  FunctionBuilder f("main");
  f.output(f.input("x", DataType::uint4, {1}));
  EXPECT_THROW(write_package(make_package(std::move(f)), folder / "a.mlpackage"), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.mlpackage"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a.mlpackage.incomplete"));
}

TEST(PackageWriter, KeepsSmallAndLogicalConstantsInTheProgram) {
  EXPECT_FALSE(goes_to_blob(halves({9}, counting(9)), 9));
  EXPECT_TRUE(goes_to_blob(halves({10}, counting(10)), 9));
  EXPECT_FALSE(goes_to_blob(flags(std::vector<bool>(100)), 9));
  const std::vector<std::int32_t> whole(10);
  EXPECT_TRUE(goes_to_blob(ints(whole), 9));
  EXPECT_FALSE(goes_to_blob(ints(whole), 8));
  EXPECT_FALSE(goes_to_blob(text("a long constant of letters"), 9));
}

TEST(PackageWriter, WritesASharedConstantOnce) {
  const Value weight = halves({16}, counting(16));
  BlobFile blobs;
  EXPECT_EQ(blobs.add(weight), 64u);
  EXPECT_EQ(blobs.add(Value(weight)), 64u);
  EXPECT_EQ(blobs.add(halves({16}, counting(16))), 64u + 128u);
}

TEST(Values, PacksElementsBelowAByteLowestFirst) {
  const int three[] = {1, 2, 7, 0, 5};
  const Value value = packed(DataType::uint3, {5}, three);
  ASSERT_EQ(value.bytes.size(), 2u);
  EXPECT_EQ(value.bytes[0], std::byte{0b11010001});
  EXPECT_EQ(value.bytes[1], std::byte{0b01010001});
  const int signed_four[] = {-1, 3};
  EXPECT_EQ(packed(DataType::int4, {2}, signed_four).bytes[0], std::byte{0x3f});
}

TEST(Values, RefusesBytesThatAreNotTheShape) {
  EXPECT_THROW(halves({4}, counting(5)), Error);
  EXPECT_THROW(raw(DataType::int8, {kUnknown}, {}), Error);
}

TEST(Builder, MakesNamesThatMilAllows) {
  EXPECT_EQ(mil_name("layers.0.k state"), "layers_0_k_state");
  EXPECT_EQ(mil_name("3d"), "_3d");
  FunctionBuilder f("main");
  const auto x = f.input("x", DataType::fp16, {1});
  const auto type = tensor(DataType::fp16, {1});
  EXPECT_NE(f.op("add", {{"x", x}, {"y", x}}, type), f.op("add", {{"x", x}, {"y", x}}, type));
}

TEST(Builder, RefusesWhatIsUnknownOrThereTwice) {
  FunctionBuilder f("main");
  f.input("x", DataType::fp16, {1});
  EXPECT_THROW(f.input("x", DataType::fp16, {1}), Error);
  EXPECT_THROW(f.op("add", {{"x", "z"}, {"y", "x"}}, tensor(DataType::fp16, {1})), Error);
  EXPECT_THROW(f.output("z"), Error);
}

TEST(Builder, MakesConstantsOfParametersAndNumbersOperations) {
  FunctionBuilder f("main");
  const auto x = f.input("x", DataType::fp16, {1, 2});
  f.op("transpose", {{"x", x}, {"perm", {1, 0}}}, tensor(DataType::fp16, {2, 1}));
  const Block block = f.take_block();
  ASSERT_EQ(block.operations.size(), 2u);
  EXPECT_EQ(block.operations[0].type, "const");
  EXPECT_EQ(block.operations[1].line, 2u);
  EXPECT_EQ(block.operations[1].input("perm")->bindings[0].name, block.operations[0].outputs[0].name);
}

TEST(Builder, LeavesAxesOfSeveralSizesOpen) {
  FunctionBuilder f("main");
  Feature ids;
  ids.name = "ids";
  ids.dtype = DataType::int32;
  ids.shape = {1, 1};
  ids.ranges = {{1, 1}, {1, 4}};
  f.input(ids);
  EXPECT_EQ(f.type_of("ids").shape, (Shape{1, kUnknown}));
}

}  // namespace
}  // namespace kvtide::coreml
