// Files that are written here and read by the strict readers: safetensors, GGUF metadata.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "kvtide/error.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(SafeTensorsWriter, WhatItWritesIsReadBack_AlignedAndWithItsChecksum) {
  const testing::TemporaryFolder folder;
  SafeTensorsWriter writer;
  writer.add("odd", "I8", {3}, bytes_of("abc"));
  writer.add("half", "F16", {1, 2}, bytes_of("efgh"));
  writer.add("single", "F32", {2}, bytes_of("ijklmnop"));
  writer.add("none", "F32", {0, 4}, {});
  writer.set_metadata("who", "a \"quoted\" name");
  PosixFiles files;
  const std::string path = folder.path("x.safetensors");
  const auto written = writer.save(files, path);
  const MappedFile file(path);
  EXPECT_EQ(file.bytes().size(), written.bytes);
  EXPECT_EQ(crc32c(file.bytes()), written.crc32c);
  std::uint64_t header = 0;
  std::memcpy(&header, file.bytes().data(), sizeof header);
  EXPECT_EQ(header % 8, 0u);
  const SafeTensors found = SafeTensors::parse(file.bytes(), path);
  EXPECT_EQ(found.metadata, (std::map<std::string, std::string>{{"who", "a \"quoted\" name"}}));
  ASSERT_EQ(found.tensors.size(), 4u);
  EXPECT_EQ(text_of(found.tensors.at("odd").bytes), "abc");
  EXPECT_EQ(text_of(found.tensors.at("half").bytes), "efgh");
  EXPECT_EQ(found.tensors.at("half").shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(text_of(found.tensors.at("single").bytes), "ijklmnop");
  for (const auto& [name, size] : {std::pair("half", 2), {"single", 4}})
    EXPECT_EQ((found.tensors.at(name).bytes.data() - file.bytes().data()) % size, 0) << name;
}

TEST(SafeTensorsWriter, RefusesWhatNoReaderWouldTake) {
  SafeTensorsWriter writer;
  writer.add("a", "I8", {2}, bytes_of("ab"));
  EXPECT_NE(message_of([&] { writer.add("a", "I8", {2}, bytes_of("ab")); }).find("is there twice"),
            std::string::npos);
  EXPECT_NE(message_of([&] { writer.add("b", "F32", {2}, bytes_of("ab")); }).find("has 2 bytes"),
            std::string::npos);
  EXPECT_NE(message_of([&] { writer.add("b", "F8", {2}, bytes_of("ab")); }).find("not written"),
            std::string::npos);
  EXPECT_NE(message_of([&] { writer.add("b", "I8", {-2}, bytes_of("ab")); }).find("negative"),
            std::string::npos);
  EXPECT_NE(message_of([&] { writer.add("__metadata__", "I8", {2}, bytes_of("ab")); }).find("that name"),
            std::string::npos);
}

TEST(GgufWriter, KeysOfEveryKindAreReadBack) {
  const std::vector<std::string_view> words = {"", "two words", "\xc3\xa9"};
  const std::vector<float> numbers = {0.5f, -1e-20f};
  const std::vector<std::int32_t> types = {1, 3, 6};
  GgufWriter writer;
  writer.add("a.text", "hello")
      .add("a.number", std::uint32_t{4000000000})
      .add("a.yes", true)
      .add("a.no", false)
      .add("a.words", std::span(words))
      .add("a.numbers", std::span<const float>(numbers))
      .add("a.types", std::span<const std::int32_t>(types));
  const std::vector<std::byte> bytes = writer.bytes();  // which the file refers to
  const GgufFile file = GgufFile::from_bytes(bytes, "made.gguf");
  EXPECT_EQ(file.get_string("a.text"), "hello");
  EXPECT_EQ(file.get_uint("a.number"), 4000000000u);
  EXPECT_EQ(file.get_bool("a.yes"), true);
  EXPECT_EQ(file.get_bool("a.no"), false);
  const auto texts = file.get_strings("a.words");
  ASSERT_TRUE(texts.has_value());
  EXPECT_EQ((std::vector<std::string_view>(texts->begin(), texts->end())), words);
  EXPECT_EQ(file.get_floats("a.numbers"), numbers);
  EXPECT_EQ(file.get_ints("a.types"), types);
  EXPECT_TRUE(file.tensors().empty());
}

}  // namespace
}  // namespace kvtide
