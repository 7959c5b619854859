// The numbers, names and sizes are those of the GGUF format; they are written out here from its description.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "tensor/blocks.h"

namespace kvtide {
namespace {

struct Known {
  std::uint32_t number;
  DType dtype;
  std::string_view name;
  std::int64_t elements;  // per block
  std::int64_t bytes;     // per block
};

constexpr Known kKnown[] = {
    {0, DType::f32, "f32", 1, 4},
    {1, DType::f16, "f16", 1, 2},
    {2, DType::q4_0, "q4_0", 32, 2 + 16},
    {3, DType::q4_1, "q4_1", 32, 2 + 2 + 16},
    {6, DType::q5_0, "q5_0", 32, 2 + 4 + 16},
    {7, DType::q5_1, "q5_1", 32, 2 + 2 + 4 + 16},
    {8, DType::q8_0, "q8_0", 32, 2 + 32},
    {10, DType::q2_k, "q2_k", 256, 16 + 64 + 2 + 2},
    {11, DType::q3_k, "q3_k", 256, 32 + 64 + 12 + 2},
    {12, DType::q4_k, "q4_k", 256, 2 + 2 + 12 + 128},
    {13, DType::q5_k, "q5_k", 256, 2 + 2 + 12 + 32 + 128},
    {14, DType::q6_k, "q6_k", 256, 128 + 64 + 16 + 2},
    {20, DType::iq4_nl, "iq4_nl", 32, 2 + 16},
    {30, DType::bf16, "bf16", 1, 2},
    {39, DType::mxfp4, "mxfp4", 32, 1 + 16},
};

TEST(DType, TableHoldsTheTypesOfTheFormatWithTheirNumbersNamesAndSizes) {
  ASSERT_EQ(std::size(kDTypes), std::size(kKnown));
  for (const Known& known : kKnown) {
    EXPECT_EQ(dtype_from_number(known.number), known.dtype) << known.name;
    EXPECT_EQ(dtype_from_name(known.name), known.dtype) << known.name;
    const DTypeInfo& info = dtype_info(known.dtype);
    EXPECT_EQ(info.name, known.name);
    EXPECT_EQ(info.block_elements, known.elements) << known.name;
    EXPECT_EQ(info.block_bytes, known.bytes) << known.name;
  }
}

TEST(DType, NumbersAndNamesThatAreNotReadGiveNothing) {
  for (const std::uint32_t number : {4u, 5u, 9u, 15u, 16u, 19u, 21u, 29u, 31u, 38u, 40u, 0xffffffffu})
    EXPECT_EQ(dtype_from_number(number), std::nullopt) << number;
  for (const std::string_view name : {"", "Q4_0", "q4", "f64", "q4_0 ", "i8"})
    EXPECT_EQ(dtype_from_name(name), std::nullopt) << name;
}

TEST(DType, BytesOfARowFollowFromWholeBlocks) {
  EXPECT_EQ(dtype_bytes(DType::f32, 7), 28);
  EXPECT_EQ(dtype_bytes(DType::bf16, 7), 14);
  EXPECT_EQ(dtype_bytes(DType::q4_1, 576), 360);  // a row of SmolLM2-135M
  EXPECT_EQ(dtype_bytes(DType::q8_0, 576), 612);
  EXPECT_EQ(dtype_bytes(DType::q4_k, 2048), 1152);
  EXPECT_EQ(dtype_bytes(DType::q6_k, 0), 0);
  EXPECT_EQ(dtype_bytes(DType::f32, std::int64_t{1} << 54), std::int64_t{1} << 56);
}

template <class Block>
void expect_block(DType dtype) {
  EXPECT_EQ(sizeof(Block), static_cast<std::size_t>(dtype_info(dtype).block_bytes)) << dtype_info(dtype).name;
  EXPECT_EQ(alignof(Block), 1u) << dtype_info(dtype).name << ": blocks lie at any byte of a file";
}

TEST(Blocks, AreAsLargeAsTheTypeTableSays_AndNeedNoAlignment) {
  expect_block<BlockQ4_0>(DType::q4_0);
  expect_block<BlockQ4_1>(DType::q4_1);
  expect_block<BlockQ5_0>(DType::q5_0);
  expect_block<BlockQ5_1>(DType::q5_1);
  expect_block<BlockQ8_0>(DType::q8_0);
  expect_block<BlockQ2K>(DType::q2_k);
  expect_block<BlockQ3K>(DType::q3_k);
  expect_block<BlockQ4K>(DType::q4_k);
  expect_block<BlockQ5K>(DType::q5_k);
  expect_block<BlockQ6K>(DType::q6_k);
  expect_block<BlockIQ4NL>(DType::iq4_nl);
  expect_block<BlockMxfp4>(DType::mxfp4);
}

TEST(Blocks, PutTheirFieldsAtTheOffsetsOfTheFormat) {
  EXPECT_EQ(offsetof(BlockQ4_1, m), 2u);
  EXPECT_EQ(offsetof(BlockQ4_1, qs), 4u);
  EXPECT_EQ(offsetof(BlockQ5_0, qh), 2u);
  EXPECT_EQ(offsetof(BlockQ5_0, qs), 6u);
  EXPECT_EQ(offsetof(BlockQ5_1, qh), 4u);
  EXPECT_EQ(offsetof(BlockQ8_0, qs), 2u);
  EXPECT_EQ(offsetof(BlockQ2K, qs), 16u);
  EXPECT_EQ(offsetof(BlockQ2K, d), 80u);
  EXPECT_EQ(offsetof(BlockQ3K, qs), 32u);
  EXPECT_EQ(offsetof(BlockQ3K, scales), 96u);
  EXPECT_EQ(offsetof(BlockQ3K, d), 108u);
  EXPECT_EQ(offsetof(BlockQ4K, scales), 4u);
  EXPECT_EQ(offsetof(BlockQ4K, qs), 16u);
  EXPECT_EQ(offsetof(BlockQ5K, qh), 16u);
  EXPECT_EQ(offsetof(BlockQ5K, qs), 48u);
  EXPECT_EQ(offsetof(BlockQ6K, qh), 128u);
  EXPECT_EQ(offsetof(BlockQ6K, scales), 192u);
  EXPECT_EQ(offsetof(BlockQ6K, d), 208u);
}

}  // namespace
}  // namespace kvtide
