#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "kvtide/error.h"
#include "tests/formats/temporary_folder.h"
#include "tests/hostile/sample_files.h"

namespace kvtide {
namespace {

using testing::Bytes;
using testing::every_type_file;
using testing::GgufBuilder;
using testing::TemporaryFolder;

TEST(Gguf, KeepsKeysInTheOrderOfTheFile) {
  const auto image = GgufBuilder().key("z", 1u).key("a", "text").key("m", true).build();
  const GgufFile file = GgufFile::from_bytes(image.bytes);
  ASSERT_EQ(file.metadata().size(), 3u);
  EXPECT_EQ(file.metadata()[0].key, "z");
  EXPECT_EQ(file.metadata()[1].key, "a");
  EXPECT_EQ(file.metadata()[2].key, "m");
}

TEST(Gguf, FindsEveryKeyAndOnlyThose) {
  const auto image = every_type_file();
  const GgufFile file = GgufFile::from_bytes(image.bytes);
  ASSERT_EQ(file.metadata().size(), 27u);
  for (const auto& entry : file.metadata()) EXPECT_EQ(file.find(entry.key), &entry.value) << entry.key;
  for (const char* absent : {"", "a", "a.u", "a.u88", "general", "zzz"})
    EXPECT_EQ(file.find(absent), nullptr);
}

TEST(Gguf, DescribesTensorsAsTheFileDoes) {
  const auto image = every_type_file();
  const GgufFile file = GgufFile::from_bytes(image.bytes);
  ASSERT_EQ(file.tensors().size(), 14u);
  const GgufTensor* tensor = file.find_tensor("t.q5_0");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::q5_0);
  EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{32, 2, 1}));
  EXPECT_EQ(tensor->data.size(), 44u);
  EXPECT_EQ(tensor->part, 0u);
  EXPECT_EQ(file.find_tensor("t.q5_1"), nullptr);
  EXPECT_EQ(file.find_tensor(""), nullptr);
}

TEST(Gguf, PointsAtTheBytesOfEachTensor) {
  Bytes first(16), second(36);
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = std::byte{static_cast<std::uint8_t>(i)};
  for (std::size_t i = 0; i < second.size(); ++i) second[i] = std::byte{static_cast<std::uint8_t>(200 - i)};
  const auto image =
      GgufBuilder().tensor("a", {4}, DType::f32, first).tensor("b", {64}, DType::q4_0, second).build();
  const GgufFile file = GgufFile::from_bytes(image.bytes);
  EXPECT_EQ(Bytes(file.tensors()[0].data.begin(), file.tensors()[0].data.end()), first);
  EXPECT_EQ(Bytes(file.tensors()[1].data.begin(), file.tensors()[1].data.end()), second);
}

TEST(Gguf, LaysTensorsOutByTheAlignmentOfTheFile) {
  for (const std::uint32_t alignment : {1u, 4u, 64u, 4096u, 65536u}) {
    GgufBuilder builder;
    builder.alignment(alignment).tensor("x", {32}, DType::q8_0).tensor("y", {32}, DType::q8_0);
    const auto image = builder.build();
    const GgufFile file = GgufFile::from_bytes(image.bytes);
    const auto offset = [&](std::size_t i) { return file.tensors()[i].data.data() - image.bytes.data(); };
    EXPECT_EQ(offset(0) % alignment, 0) << alignment;
    EXPECT_EQ(offset(1), static_cast<std::ptrdiff_t>(image.bytes.size() - 34)) << alignment;
  }
}

TEST(Gguf, ReadsVersion2AsVersion3) {
  const auto image = GgufBuilder().version(2).key("k", "v").tensor("t", {4}, DType::f32).build();
  const GgufFile file = GgufFile::from_bytes(image.bytes);
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.get_string("k"), "v");
  EXPECT_EQ(file.tensors().size(), 1u);
}

TEST(Gguf, MayHoldNothingAtAll) {
  const auto image = GgufBuilder().build();
  const GgufFile file = GgufFile::from_bytes(image.bytes, "empty.gguf");
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.path(), "empty.gguf");
  EXPECT_EQ(file.file_bytes(), 24u);
  EXPECT_EQ(file.find("k"), nullptr);
}

TEST(Gguf, MayHoldMetadataOnly_AsAVocabularyDoes) {
  const auto image = GgufBuilder().key("general.architecture", "llama").strings("v", {"a", "b"}).build();
  EXPECT_EQ(GgufFile::from_bytes(image.bytes).get_strings("v")->size(), 2u);
}

TEST(Gguf, AllowsGapsBetweenTensorsAndBytesAfterTheLast) {
  auto image = GgufBuilder().tensor("a", {4}, DType::f32).tensor("b", {4}, DType::f32).build();
  image.put(image.field(testing::GgufFieldKind::tensor_offset, "b"), std::uint64_t{128});
  image.bytes.resize(image.bytes.size() + 500);
  const GgufFile file = GgufFile::from_bytes(image.bytes);
  EXPECT_EQ(file.tensors()[1].data.data() - file.tensors()[0].data.data(), 128);
}

TEST(Gguf, AllowsTensorsInAnyOrderOfOffsets) {
  auto image = GgufBuilder().tensor("a", {4}, DType::f32).tensor("b", {4}, DType::f32).build();
  image.put(image.field(testing::GgufFieldKind::tensor_offset, "a"), std::uint64_t{32});
  image.put(image.field(testing::GgufFieldKind::tensor_offset, "b"), std::uint64_t{0});
  const GgufFile file = GgufFile::from_bytes(image.bytes);
  EXPECT_EQ(file.tensors()[0].data.data() - file.tensors()[1].data.data(), 32);
}

TEST(Gguf, AllowsNamesInOtherLanguagesAndOf64Bytes) {
  const std::string longest(64, 'n');
  const auto image = GgufBuilder().key("ключ", "значение").tensor(longest, {4}, DType::f32).build();
  const GgufFile file = GgufFile::from_bytes(image.bytes);
  EXPECT_EQ(file.get_string("ключ"), "значение");
  EXPECT_NE(file.find_tensor(longest), nullptr);
}

TEST(Gguf, KeepsItsViewsWhenItIsMoved) {
  TemporaryFolder folder;
  const auto path = folder.write("m.gguf", every_type_file().bytes);
  GgufFile first(path, MappedFile::Mode::copy);
  const std::string_view text = *first.get_string("a.string");
  const auto* weights = first.find_tensor("t.f32")->data.data();
  const GgufFile second = std::move(first);
  EXPECT_EQ(second.get_string("a.string")->data(), text.data());
  EXPECT_EQ(text, "text");
  EXPECT_EQ(second.find_tensor("t.f32")->data.data(), weights);
}

TEST(Gguf, ReadsTheSameFromAMappedFileACopyAndMemory) {
  TemporaryFolder folder;
  const auto image = every_type_file();
  const auto path = folder.write("m.gguf", image.bytes);
  const GgufFile mapped(path);
  const GgufFile copied(path, MappedFile::Mode::copy);
  const GgufFile memory = GgufFile::from_bytes(image.bytes);
  EXPECT_EQ(mapped.path(), path);
  EXPECT_EQ(mapped.file_bytes(), image.bytes.size());
  for (const GgufFile* file : {&mapped, &copied}) {
    ASSERT_EQ(file->tensors().size(), memory.tensors().size());
    for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
      const auto& a = file->tensors()[i].data;
      const auto& b = memory.tensors()[i].data;
      EXPECT_EQ(Bytes(a.begin(), a.end()), Bytes(b.begin(), b.end())) << memory.tensors()[i].name;
    }
    EXPECT_EQ(file->get_numbers("b.f64"), memory.get_numbers("b.f64"));
  }
}

TEST(Gguf, GivesPagesBackAndReadsThemAgain) {
  TemporaryFolder folder;
  const auto image = GgufBuilder().tensor("t", {64, 1024}, DType::f32).build();
  const GgufFile file(folder.write("m.gguf", image.bytes));
  const GgufTensor& tensor = file.tensors()[0];
  const Bytes before(tensor.data.begin(), tensor.data.end());
  file.release(tensor);
  EXPECT_EQ(Bytes(tensor.data.begin(), tensor.data.end()), before);
  GgufFile::from_bytes(image.bytes).release(tensor);  // memory is not ours to give back
  EXPECT_EQ(Bytes(tensor.data.begin(), tensor.data.end()), before);
}

ErrorCode code_of_opening(const std::string& path) {
  try {
    GgufFile file(path);
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
    return error.code();
  }
  ADD_FAILURE() << path << " was opened";
  return ErrorCode::cancelled;
}

TEST(Gguf, RefusesWhatIsNotAFileAndNamesIt) {
  TemporaryFolder folder;
  EXPECT_EQ(code_of_opening(folder.path("absent.gguf")), ErrorCode::not_found);
  EXPECT_EQ(code_of_opening(folder.path(".")), ErrorCode::bad_format);
  EXPECT_EQ(code_of_opening(folder.write("empty.gguf", {})), ErrorCode::bad_format);
  EXPECT_EQ(code_of_opening(folder.write("text.gguf", Bytes(100, std::byte{'x'}))), ErrorCode::bad_format);
}

TEST(Gguf, ReadsAFileWrittenByTheReferenceImplementation) {
  const GgufFile file(KVTIDE_GOLDENS "/models/qwen2-biases.gguf");
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.get_string("general.architecture"), "qwen2");
  EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens")->size(), 64u);
  const GgufTensor* bias = file.find_tensor("blk.0.attn_q.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->shape.size(), 1u);
  EXPECT_EQ(bias->dtype, DType::f32);
}

}  // namespace
}  // namespace kvtide
