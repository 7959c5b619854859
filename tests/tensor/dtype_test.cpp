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
    {16, DType::iq2_xxs, "iq2_xxs", 256, 2 + 64},
    {17, DType::iq2_xs, "iq2_xs", 256, 2 + 64 + 8},
    {18, DType::iq3_xxs, "iq3_xxs", 256, 2 + 64 + 32},
    {19, DType::iq1_s, "iq1_s", 256, 2 + 32 + 16},
    {20, DType::iq4_nl, "iq4_nl", 32, 2 + 16},
    {21, DType::iq3_s, "iq3_s", 256, 2 + 64 + 8 + 32 + 4},
    {22, DType::iq2_s, "iq2_s", 256, 2 + 64 + 8 + 8},
    {23, DType::iq4_xs, "iq4_xs", 256, 2 + 2 + 4 + 128},
    {29, DType::iq1_m, "iq1_m", 256, 32 + 16 + 8},
    {30, DType::bf16, "bf16", 1, 2},
    {34, DType::tq1_0, "tq1_0", 256, 48 + 4 + 2},
    {35, DType::tq2_0, "tq2_0", 256, 64 + 2},
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
  for (const std::uint32_t number : {4u, 5u, 9u, 15u, 24u, 28u, 31u, 36u, 38u, 40u, 0xffffffffu})
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
  expect_block<BlockIQ4XS>(DType::iq4_xs);
  expect_block<BlockIQ3XXS>(DType::iq3_xxs);
  expect_block<BlockIQ3S>(DType::iq3_s);
  expect_block<BlockIQ2XXS>(DType::iq2_xxs);
  expect_block<BlockIQ2XS>(DType::iq2_xs);
  expect_block<BlockIQ2S>(DType::iq2_s);
  expect_block<BlockIQ1S>(DType::iq1_s);
  expect_block<BlockIQ1M>(DType::iq1_m);
  expect_block<BlockTQ1_0>(DType::tq1_0);
  expect_block<BlockTQ2_0>(DType::tq2_0);
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
  EXPECT_EQ(offsetof(BlockIQ4XS, scales_low), 4u);
  EXPECT_EQ(offsetof(BlockIQ4XS, qs), 8u);
  EXPECT_EQ(offsetof(BlockIQ3XXS, signs_and_scale), 66u);
  EXPECT_EQ(offsetof(BlockIQ3S, qh), 66u);
  EXPECT_EQ(offsetof(BlockIQ3S, signs), 74u);
  EXPECT_EQ(offsetof(BlockIQ3S, scales), 106u);
  EXPECT_EQ(offsetof(BlockIQ2XS, scales), 66u);
  EXPECT_EQ(offsetof(BlockIQ2S, signs), 34u);
  EXPECT_EQ(offsetof(BlockIQ2S, qh), 66u);
  EXPECT_EQ(offsetof(BlockIQ1S, qh), 34u);
  EXPECT_EQ(offsetof(BlockIQ1M, scales), 48u);
  EXPECT_EQ(offsetof(BlockTQ1_0, d), 52u);
  EXPECT_EQ(offsetof(BlockTQ2_0, d), 64u);
}

}  // namespace
}  // namespace kvtide
