#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "formats/gguf.h"
#include "kvtide/error.h"
#include "tests/formats/temporary_folder.h"
#include "tests/hostile/gguf_builder.h"

namespace kvtide {
namespace {

using testing::Bytes;
using testing::GgufBuilder;
using testing::TemporaryFolder;

struct Part {
  std::uint16_t number = 0;  // split.no, from 0
  std::uint16_t count = 3;
  std::vector<std::string> tensors;
  std::int32_t total = 4;
};

Bytes part_bytes(const Part& part) {
  GgufBuilder builder;
  builder.key("split.no", part.number).key("split.count", part.count).key("split.tensors.count", part.total);
  if (part.number == 0) builder.key("general.architecture", "test");
  for (const std::string& name : part.tensors) builder.tensor(name, {8}, DType::f32);
  return builder.build().bytes;
}

// Three good parts in a folder; tests replace or remove one.
struct SplitModel {
  TemporaryFolder folder;
  SplitModel() {
    write("m-00001-of-00003.gguf", {.number = 0, .tensors = {"a", "b"}});
    write("m-00002-of-00003.gguf", {.number = 1, .tensors = {"c"}});
    write("m-00003-of-00003.gguf", {.number = 2, .tensors = {"d"}});
  }
  void write(const std::string& name, const Part& part) const { folder.write(name, part_bytes(part)); }
  std::string first() const { return folder.path("m-00001-of-00003.gguf"); }
};

void expect_refused(const std::string& path, ErrorCode code, const std::string& says) {
  try {
    GgufFile file(path);
    ADD_FAILURE() << path << " was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_NE(error.message().find(says), std::string::npos) << error.message() << "\nshould say: " << says;
  }
}

TEST(GgufSplit, OpensAllPartsFromTheFirst) {
  const SplitModel model;
  const GgufFile file(model.first());
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.find_tensor("b")->part, 0u);
  EXPECT_EQ(file.find_tensor("c")->part, 1u);
  EXPECT_EQ(file.find_tensor("d")->part, 2u);
  EXPECT_EQ(file.find_tensor("d")->data.size(), 32u);
  EXPECT_EQ(file.get_string("general.architecture"), "test");
  std::uint64_t bytes = 0;
  for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"})
    bytes += std::filesystem::file_size(model.folder.path(name));
  EXPECT_EQ(file.file_bytes(), bytes);
  file.release(*file.find_tensor("d"));
  EXPECT_EQ(file.find_tensor("d")->data.size(), 32u);
}

TEST(GgufSplit, OpensAModelOfOnePartUnderAnyName) {
  TemporaryFolder folder;
  const Bytes bytes = part_bytes({.number = 0, .count = 1, .tensors = {"a"}, .total = 1});
  EXPECT_EQ(GgufFile(folder.write("one.gguf", bytes)).tensors().size(), 1u);
  EXPECT_EQ(GgufFile(folder.write("one-00001-of-00001.gguf", bytes)).tensors().size(), 1u);
}

TEST(GgufSplit, RefusesAMissingPartAndNamesIt) {
  const SplitModel model;
  std::filesystem::remove(model.folder.path("m-00002-of-00003.gguf"));
  expect_refused(model.first(), ErrorCode::not_found, "m-00002-of-00003.gguf: cannot open");
}

TEST(GgufSplit, RefusesALaterPartAndNamesTheFirst) {
  const SplitModel model;
  expect_refused(
      model.folder.path("m-00002-of-00003.gguf"), ErrorCode::bad_format,
      "is part 2 of 3 (key 'split.no' is 1); open the first part, named ...-00001-of-00003.gguf, instead");
}

TEST(GgufSplit, RefusesAFirstPartUnderAnotherName) {
  const SplitModel model;
  std::filesystem::rename(model.first(), model.folder.path("model.gguf"));
  expect_refused(model.folder.path("model.gguf"), ErrorCode::bad_format,
                 "key 'split.count' says 3 parts; the first must be named ...-00001-of-00003.gguf");
}

TEST(GgufSplit, RefusesACountThatTheNameContradicts) {
  const SplitModel model;
  model.write("m-00001-of-00003.gguf", {.number = 0, .count = 4, .tensors = {"a", "b"}});
  expect_refused(model.first(), ErrorCode::bad_format, "key 'split.count' says 4 parts");
}

TEST(GgufSplit, RefusesANameThatTheKeysContradict) {
  TemporaryFolder folder;
  const auto path = folder.write("m-00001-of-00003.gguf", GgufBuilder().key("a", 1u).build().bytes);
  expect_refused(path, ErrorCode::bad_format,
                 "is named as one of 3 parts, but its key 'split.count' does not say so");
}

TEST(GgufSplit, RefusesPartsThatWereSwappedOrBelongElsewhere) {
  const SplitModel model;
  model.write("m-00002-of-00003.gguf", {.number = 2, .tensors = {"c"}});
  expect_refused(model.first(), ErrorCode::bad_format,
                 "m-00002-of-00003.gguf: key 'split.no' is 2; it must be 1");
  model.write("m-00002-of-00003.gguf", {.number = 1, .count = 5, .tensors = {"c"}});
  expect_refused(model.first(), ErrorCode::bad_format, "key 'split.count' is 5; the first part says 3");
  model.folder.write("m-00002-of-00003.gguf", GgufBuilder().tensor("c", {8}, DType::f32).build().bytes);
  expect_refused(model.first(), ErrorCode::bad_format, "key 'split.no' is absent; it must be 1");
}

TEST(GgufSplit, RefusesATensorThatTwoPartsHold) {
  const SplitModel model;
  model.write("m-00003-of-00003.gguf", {.number = 2, .tensors = {"a"}});
  expect_refused(model.first(), ErrorCode::bad_format, "tensor 'a' appears more than once");
}

TEST(GgufSplit, RefusesATotalThatThePartsDoNotHold) {
  const SplitModel model;
  model.write("m-00003-of-00003.gguf", {.number = 2, .tensors = {}});
  expect_refused(model.first(), ErrorCode::bad_format,
                 "key 'split.tensors.count' says 4 tensors; the 3 parts hold 3");
}

TEST(GgufSplit, RefusesABrokenPartAndNamesIt) {
  const SplitModel model;
  model.folder.write("m-00003-of-00003.gguf", Bytes(100, std::byte{'x'}));
  expect_refused(model.first(), ErrorCode::bad_format, "m-00003-of-00003.gguf: header: starts with 'xxxx'");
}

TEST(GgufSplit, RefusesKeysOfTheWrongType) {
  TemporaryFolder folder;
  const auto write = [&](const GgufBuilder& builder) {
    return folder.write("x.gguf", builder.build().bytes);
  };
  expect_refused(write(GgufBuilder().key("split.count", "3")), ErrorCode::bad_format,
                 "key 'split.count': is of type string; an integer is needed");
  expect_refused(write(GgufBuilder().key("split.count", std::int32_t{-3})), ErrorCode::bad_format,
                 "key 'split.count': is -3; it must not be negative");
  expect_refused(write(GgufBuilder().key("split.count", std::uint16_t{2}).key("split.no", 0.0f)),
                 ErrorCode::bad_format, "key 'split.no': is of type f32");
}

TEST(GgufSplit, TakesNamesOfPartsFromThePathOnly_NotFromTheFile) {
  const SplitModel model;
  model.write("m-00001-of-00003.gguf", {.number = 0, .count = 65535, .tensors = {"a", "b"}});
  expect_refused(model.first(), ErrorCode::bad_format, "key 'split.count' says 65535 parts");
  TemporaryFolder folder;
  const auto huge = GgufBuilder().key("split.count", ~std::uint64_t{0}).key("split.no", ~std::uint64_t{0});
  expect_refused(folder.write("x.gguf", huge.build().bytes), ErrorCode::bad_format,
                 "of 18446744073709551615");
}

TEST(GgufSplit, RefusesAPartThatComesFromMemory) {
  const Bytes bytes = part_bytes({.number = 0, .tensors = {"a"}});
  try {
    GgufFile::from_bytes(bytes, "memory");
    FAIL() << "a part was read without the others";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.message(), "memory: a part of a split model cannot be read from memory");
  }
}

}  // namespace
}  // namespace kvtide
