#include "kernels/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "kernels/codec.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "tensor/panel.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

using testing::random_blocks;
using testing::same_bits;

constexpr DType kPanelTypes[] = {DType::q4_0, DType::q4_1, DType::q5_0,
                                 DType::q8_0, DType::q4_k, DType::q6_k};

DecodeFn decoder_of(const MatmulRow& row, DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return row.decode_q4_0;
    case DType::q4_1:
      return row.decode_q4_1;
    case DType::q5_0:
      return row.decode_q5_0;
    case DType::q8_0:
      return row.decode_q8_0;
    case DType::q4_k:
      return row.decode_q4_k;
    default:
      return row.decode_q6_k;
  }
}

// One panel of `rows` rows of the file's blocks.
std::vector<std::byte> panel_of(DType dtype, const std::vector<std::byte>& blocks, std::int64_t k, int rows) {
  const std::byte* sources[kPanelRows] = {};
  for (int r = 0; r < rows; ++r) sources[r] = blocks.data() + r * dtype_bytes(dtype, k);
  std::vector<std::byte> panel(static_cast<std::size_t>(panel_bytes(dtype, k)), std::byte{0xa5});
  pack_panel(dtype, sources, k, panel.data());
  return panel;
}

// Files keep packed bytes. Who changes what they are raises the version of packed_layout(), and then the sum here.
TEST(Pack, KeepsTheBytesOfItsLayout_OrTheVersionOfTheLayoutIsRaised) {
  std::uint32_t sum = 0;
  for (const DTypeInfo& info : kDTypes) {
    if (!panel_shape(info.dtype)) continue;
    constexpr std::int64_t kColumns = 512;
    const int rows = 13;
    std::vector<std::byte> blocks(static_cast<std::size_t>(dtype_bytes(info.dtype, kColumns * rows)));
    std::uint32_t state = 1;
    for (std::byte& byte : blocks)
      byte = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24);
    const auto panel = panel_of(info.dtype, blocks, kColumns, rows);
    sum = crc32c(panel, sum);
  }
  EXPECT_EQ(sum, 825643778u) << "the packed bytes are others than those of version "
                             << packed_layout().version;
  EXPECT_EQ(packed_layout().version, 1u);
}

// What the file's own rows decode to, as a panel's decoder lays it out: [k][16], missing rows as zeros.
std::vector<float> expected_values(DType dtype, const std::vector<std::byte>& blocks, std::int64_t k,
                                   int rows) {
  std::vector<float> out(static_cast<std::size_t>(k * kPanelRows), 0.0f), row(static_cast<std::size_t>(k));
  for (int r = 0; r < rows; ++r) {
    decode_row(dtype, blocks.data() + r * dtype_bytes(dtype, k), k, row.data());
    for (std::int64_t i = 0; i < k; ++i)
      out[static_cast<std::size_t>(i * kPanelRows + r)] = row[static_cast<std::size_t>(i)];
  }
  return out;
}

TEST(Pack, DecodesToTheBitsOfTheFilesRows_ForEveryTypeAndTable) {
  const std::int64_t k = 512;
  for (const DType dtype : kPanelTypes)
    for (const float scale : {0.01f, 6.0e4f, 1e-7f}) {  // ordinary, the largest of f16, its subnormals
      const auto blocks = random_blocks(dtype, k * 16, 7, scale);
      const auto panel = panel_of(dtype, blocks, k, 16);
      const auto wanted = expected_values(dtype, blocks, k, 16);
      for (const Kernels* kernels : available_kernels()) {
        std::vector<float> got(wanted.size());
        decoder_of(kernels->matmul, dtype)(panel.data(), 0, k, got.data());
        EXPECT_TRUE(same_bits(got, wanted))
            << dtype_info(dtype).name << " " << kernels->isa << " scale " << scale;
      }
    }
}

TEST(Pack, DecodesAnySliceOfWholeBlocksLikeTheWhole) {
  const std::int64_t k = 1024;
  for (const DType dtype : kPanelTypes) {
    const auto blocks = random_blocks(dtype, k * 16, 8, 0.02f);
    const auto panel = panel_of(dtype, blocks, k, 16);
    const auto wanted = expected_values(dtype, blocks, k, 16);
    const std::int64_t step = dtype_info(dtype).block_elements;
    for (const Kernels* kernels : available_kernels())
      for (const auto& [from, to] : {std::pair{step, 2 * step}, std::pair{k - step, k}, std::pair{step, k}}) {
        std::vector<float> got(static_cast<std::size_t>((to - from) * kPanelRows + 1), -7.5f);
        decoder_of(kernels->matmul, dtype)(panel.data(), from, to, got.data());
        EXPECT_EQ(got.back(), -7.5f) << "wrote behind its slice";
        got.pop_back();
        EXPECT_TRUE(same_bits(
            got, std::span(wanted).subspan(static_cast<std::size_t>(from * kPanelRows), got.size())))
            << dtype_info(dtype).name << " " << kernels->isa << " [" << from << ", " << to << ")";
      }
  }
}

TEST(Pack, DecodesMissingRowsAsZeros) {
  for (const DType dtype : kPanelTypes)
    for (const int rows : {1, 3, 15}) {
      const std::int64_t k = 256;
      const auto blocks = random_blocks(dtype, k * rows, 9, 0.5f);
      const auto panel = panel_of(dtype, blocks, k, rows);
      for (const Kernels* kernels : available_kernels()) {
        std::vector<float> got(static_cast<std::size_t>(k * kPanelRows));
        decoder_of(kernels->matmul, dtype)(panel.data(), 0, k, got.data());
        for (std::int64_t i = 0; i < k; ++i)
          for (int r = rows; r < kPanelRows; ++r)
            ASSERT_EQ(got[static_cast<std::size_t>(i * kPanelRows + r)], 0.0f)
                << dtype_info(dtype).name << " " << kernels->isa << " row " << r;
      }
    }
}

TEST(Pack, NeedsNoAlignmentOfTheFilesRows) {
  for (const DType dtype : kPanelTypes) {
    const std::int64_t k = 256;
    const auto blocks = random_blocks(dtype, k * 16, 10, 0.5f);
    std::vector<std::byte> shifted(blocks.size() + 1);
    std::memcpy(shifted.data() + 1, blocks.data(), blocks.size());
    const std::byte* sources[kPanelRows];
    for (int r = 0; r < kPanelRows; ++r) sources[r] = shifted.data() + 1 + r * dtype_bytes(dtype, k);
    std::vector<std::byte> panel(static_cast<std::size_t>(panel_bytes(dtype, k)));
    pack_panel(dtype, sources, k, panel.data());
    EXPECT_EQ(panel, panel_of(dtype, blocks, k, 16)) << dtype_info(dtype).name;
  }
}

TEST(Pack, SpendsTheBytesOfTheFile_AndThreePercentMoreForSixBitScales) {
  EXPECT_EQ(panel_bytes(DType::q4_0, 1024), 16 * dtype_bytes(DType::q4_0, 1024));
  EXPECT_EQ(panel_bytes(DType::q4_1, 1024), 16 * dtype_bytes(DType::q4_1, 1024));
  EXPECT_EQ(panel_bytes(DType::q5_0, 1024), 16 * dtype_bytes(DType::q5_0, 1024));
  EXPECT_EQ(panel_bytes(DType::q8_0, 1024), 16 * dtype_bytes(DType::q8_0, 1024));
  EXPECT_EQ(panel_bytes(DType::q6_k, 1024), 16 * dtype_bytes(DType::q6_k, 1024));
  EXPECT_EQ(panel_bytes(DType::q4_k, 256), 16 * (2 + 2 + 16 + 128));
}

}  // namespace
}  // namespace kvtide
