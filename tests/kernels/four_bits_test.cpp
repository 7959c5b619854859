// Rows of four bits against definitions in double precision (tools/make_four_bit_goldens.py):
// tests/goldens/procedural/four_bits.golden.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/codec.h"
#include "kernels/hadamard.h"
#include "kernels/kernels.h"
#include "tests/kernels/same_bits.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

struct Golden {
  std::vector<float> row, spread, least_error;
};

std::vector<Golden> read_goldens() {
  std::ifstream file(KVTIDE_GOLDENS "/procedural/four_bits.golden", std::ios::binary);
  std::vector<std::size_t> dims;
  for (std::string line; std::getline(file, line) && line != "end";) {
    std::istringstream words(line);
    std::string word;
    std::size_t dim = 0;
    if (words >> word && word == "row" && words >> dim) dims.push_back(dim);
  }
  std::vector<Golden> all;
  for (const std::size_t dim : dims) {
    Golden golden;
    std::vector<signed char> sixteenths(dim);
    file.read(reinterpret_cast<char*>(sixteenths.data()), static_cast<std::streamsize>(dim));
    for (const signed char x : sixteenths) golden.row.push_back(static_cast<float>(x) / 16.0f);
    for (auto [list, count] : {std::pair{&golden.spread, dim}, std::pair{&golden.least_error, dim / 32}}) {
      list->resize(count);
      file.read(reinterpret_cast<char*>(list->data()), static_cast<std::streamsize>(4 * count));
    }
    all.push_back(std::move(golden));
  }
  EXPECT_TRUE(file) << "the goldens are incomplete";
  return all;
}

TEST(FourBits, TransformRowsAsTheMatrixDoes) {
  const auto goldens = read_goldens();
  ASSERT_EQ(goldens.size(), 7u);
  for (const Golden& golden : goldens) {
    std::vector<float> spread = golden.row;
    hadamard(spread.data(), static_cast<std::int64_t>(spread.size()));
    for (std::size_t i = 0; i < spread.size(); ++i)
      ASSERT_NEAR(spread[i], golden.spread[i], 1e-5) << spread.size() << " " << i;
  }
}

TEST(FourBits, HoldTransformedRowsWithinFourPercentOfTheLeastErrorOnAverage_AndNoBlockOffByATenth) {
  double sum = 0.0, least = 0.0;
  for (const Golden& golden : read_goldens()) {
    const auto elements = static_cast<std::int64_t>(golden.spread.size());
    std::vector<std::byte> stored(static_cast<std::size_t>(dtype_bytes(DType::q4_0, elements)));
    encode_row(DType::q4_0, golden.spread.data(), elements, stored.data());
    std::vector<float> back(golden.spread.size());
    decode_row(DType::q4_0, stored.data(), elements, back.data());
    for (std::size_t block = 0; block < golden.least_error.size(); ++block) {
      double error = 0.0;
      for (std::size_t i = 32 * block; i < 32 * block + 32; ++i) {
        const double off = static_cast<double>(back[i]) - static_cast<double>(golden.spread[i]);
        error += off * off;
      }
      const double best = static_cast<double>(golden.least_error[block]);
      EXPECT_LE(error, 1.1 * best + 1e-9) << elements << " block " << block;
      EXPECT_GE(error, 0.999 * best - 1e-9) << "the golden is not the least";
      sum += error;
      least += best;
    }
  }
  EXPECT_LE(sum, 1.04 * least);
}

std::vector<std::byte> rounded(const std::vector<float>& row) {
  std::vector<std::byte> blocks(static_cast<std::size_t>(dtype_bytes(DType::q4_0, std::ssize(row))));
  encode_row(DType::q4_0, row.data(), std::ssize(row), blocks.data());
  return blocks;
}

// Blocks of all sizes, and those that kernels leave to the codec.
std::vector<float> rows_to_round() {
  std::vector<float> rows;
  for (int block = 0; block < 400; ++block)
    for (const float x : testing::normals(32, static_cast<std::uint64_t>(block)))
      rows.push_back(std::ldexp(x, block / 6 - 45));
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  for (const float largest : {nan, infinity, -infinity, 0x1p20f, 0x1p-41f, 0.0f, 5.0f})
    for (std::size_t i = 0; i < 32; ++i) {
      rows.push_back(i == 20 ? largest : 0.125f);
      if (i == 25) rows.back() = -5.0f;
    }
  return rows;
}

TEST(FourBits, AreRoundedByKernelsAsByTheCodec) {
  const std::vector<float> rows = rows_to_round();
  for (const Kernels* kernels : available_kernels()) {
    auto blocks = rounded(rows);
    std::fill(blocks.begin(), blocks.end(), std::byte{0xaa});
    kernels->dense.round_to_q4_0(rows.data(), std::ssize(rows), blocks.data());
    EXPECT_EQ(blocks, rounded(rows)) << kernels->isa;
  }
}

TEST(StoredRows, AreReadByKernelsAsByTheCodec) {
  const std::vector<float> rows = testing::normals(32 * 40, 3);
  for (const Kernels* kernels : available_kernels())
    for (const auto& [type, read] : {std::pair{DType::q4_0, kernels->dense.numbers_of_q4_0},
                                     {DType::q8_0, kernels->dense.numbers_of_q8_0}}) {
      std::vector<std::byte> blocks(static_cast<std::size_t>(dtype_bytes(type, std::ssize(rows))));
      encode_row(type, rows.data(), std::ssize(rows), blocks.data());
      std::vector<float> wanted(rows.size()), found(rows.size());
      decode_row(type, blocks.data(), std::ssize(rows), wanted.data());
      read(blocks.data(), std::ssize(rows), found.data());
      EXPECT_TRUE(testing::same_bits(found, wanted)) << kernels->isa;
    }
}

}  // namespace
}  // namespace kvtide
