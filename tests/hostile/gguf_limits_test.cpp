// Files at the limits: large counts must be quick, and memory must stay within the promise.
#include <gtest/gtest.h>

#include <string>

#include "tests/hostile/opening.h"

namespace kvtide::testing {
namespace {

Bytes header(std::uint64_t tensors, std::uint64_t keys) {
  Bytes bytes;
  append(bytes, "GGUF");
  append(bytes, std::uint32_t{3});
  append(bytes, tensors);
  append(bytes, keys);
  return bytes;
}

void append_key(Bytes& bytes, std::string_view key) {
  append(bytes, std::uint64_t{key.size()});
  append(bytes, key);
  append(bytes, std::uint32_t{0});
  append(bytes, std::uint8_t{1});
}

void append_tensor(Bytes& bytes, std::string_view name, std::uint64_t offset) {
  append(bytes, std::uint64_t{name.size()});
  append(bytes, name);
  append(bytes, std::uint32_t{1});
  append(bytes, std::uint64_t{1});
  append(bytes, static_cast<std::uint32_t>(DType::f32));
  append(bytes, offset);
}

TEST(HostileGgufLimits, AllKeysThatAreAllowed_LoadQuickly) {
  Bytes bytes = header(0, 65536);
  for (int i = 0; i < 65536; ++i) append_key(bytes, "key." + std::to_string(i));
  EXPECT_TRUE(open_and_walk(bytes).loaded);
}

TEST(HostileGgufLimits, AllTensorsThatAreAllowed_LoadQuickly) {
  Bytes bytes = header(65536, 0);
  for (int i = 0; i < 65536; ++i)
    append_tensor(bytes, "t." + std::to_string(i), std::uint64_t{32} * static_cast<std::uint64_t>(i));
  bytes.resize((bytes.size() + 31) / 32 * 32 + std::size_t{32} * 65536);
  EXPECT_TRUE(open_and_walk(bytes).loaded);
}

TEST(HostileGgufLimits, KeysThatDifferOnlyAtTheirEnds_DoNotMakeSortingSlow) {
  const std::string prefix(1000, 'k');
  Bytes bytes = header(0, 16000);
  for (int i = 0; i < 16000; ++i) append_key(bytes, prefix + std::to_string(i * 7919 % 16001));
  EXPECT_TRUE(open_and_walk(bytes).loaded);
}

TEST(HostileGgufLimits, EqualKeysInLargeNumbers_AreRefusedQuickly) {
  Bytes bytes = header(0, 65536);
  for (int i = 0; i < 65536; ++i) append_key(bytes, "same");
  const Opening opening = open_and_walk(bytes);
  EXPECT_FALSE(opening.loaded);
  EXPECT_NE(opening.message.find("key 'same': appears more than once"), std::string::npos) << opening.message;
}

TEST(HostileGgufLimits, EqualTensorNamesAtEqualOffsets_AreRefusedQuickly) {
  Bytes bytes = header(65536, 0);
  for (int i = 0; i < 65536; ++i) append_tensor(bytes, "same", 0);
  bytes.resize(bytes.size() + 64);
  EXPECT_FALSE(open_and_walk(bytes).loaded);
}

Bytes string_array(std::uint64_t count) {
  Bytes bytes = header(0, 1);
  append(bytes, std::uint64_t{1});
  append(bytes, "a");
  append(bytes, std::uint32_t{9});
  append(bytes, std::uint32_t{8});
  append(bytes, count);
  bytes.resize(bytes.size() + count * 8);  // empty strings
  return bytes;
}

TEST(HostileGgufLimits, AMegabyteOfEmptyStrings_StaysWithinTheMemoryPromise) {
  EXPECT_TRUE(open_and_walk(string_array(131000)).loaded);
}

TEST(HostileGgufLimits, TheMostStringsThatAreAllowed_StayWithinTheMemoryPromise) {
  const Opening opening = open_and_walk(string_array(std::uint64_t{1} << 22));
  EXPECT_TRUE(opening.loaded) << opening.message;
  EXPECT_GT(opening.peak_bytes, std::size_t{60} << 20) << "the meter does not see the views";
}

TEST(HostileGgufLimits, OneStringMore_IsRefusedBeforeMemoryIsTaken) {
  const Opening opening = open_and_walk(string_array((std::uint64_t{1} << 22) + 1));
  EXPECT_FALSE(opening.loaded);
  EXPECT_NE(opening.message.find("at most 4194304 are allowed"), std::string::npos) << opening.message;
  EXPECT_LT(opening.peak_bytes, std::size_t{1} << 20);
}

TEST(HostileGgufLimits, ALieAboutLengths_TakesNoMemory) {
  for (const std::uint64_t count : {std::uint64_t{1} << 22, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    Bytes bytes = string_array(16);
    std::memcpy(bytes.data() + 24 + 8 + 1 + 4 + 4, &count, sizeof(count));
    const Opening opening = open_and_walk(bytes);
    EXPECT_FALSE(opening.loaded);
    EXPECT_LT(opening.peak_bytes, std::size_t{64} << 10);
  }
}

}  // namespace
}  // namespace kvtide::testing
