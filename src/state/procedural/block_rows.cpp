#include "state/procedural/block_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/codec.h"

namespace kvtide {
namespace {

float norm(const float* x, std::int64_t n) { return std::sqrt(dot(x, x, n)); }

}  // namespace

void floats_of_row(const Kernels& kernels, DType type, const std::byte* row, std::int64_t dim, float* out) {
  if (type == DType::f16 && dim % 16 == 0)
    kernels.dense.widen(reinterpret_cast<const std::uint16_t*>(row), dim, out);
  else if (type == DType::q8_0)
    kernels.dense.numbers_of_q8_0(row, dim, out);
  else if (type == DType::q4_0)
    kernels.dense.numbers_of_q4_0(row, dim, out);
  else
    decode_row(type, row, dim, out);
}

BlockRows padded_block(std::int64_t rows, std::int64_t dim) {
  BlockRows block;
  block.rows = rows;
  block.padded_rows = (rows + 15) / 16 * 16;
  block.dim = dim;
  block.padded_dim = (dim + 15) / 16 * 16;
  block.keys.assign(static_cast<std::size_t>(block.padded_rows * block.padded_dim), 0.0f);
  block.values.assign(block.keys.size(), 0.0f);
  block.bias.assign(static_cast<std::size_t>(rows), 0.0f);
  return block;
}

// Eight sums side by side: one would wait for each addition.
float dot(const float* x, const float* y, std::int64_t n) {
  float sum[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) sum[k] += x[i + k] * y[i + k];
  for (; i < n; ++i) sum[0] += x[i] * y[i];
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

// Sorts whole numbers: the bits of a float, made to ascend as it descends, and its index.
std::vector<std::int64_t> order_of(const std::vector<float>& values, std::size_t first) {
  std::vector<std::uint64_t> keys(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i] + 0.0f);  // -0 is 0
    const std::uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    keys[i] = (static_cast<std::uint64_t>(~ascending) << 32) | i;
  }
  const auto border = keys.begin() + static_cast<std::ptrdiff_t>(std::min(first, keys.size()));
  if (border != keys.end()) std::nth_element(keys.begin(), border, keys.end());
  std::sort(keys.begin(), border);
  std::vector<std::int64_t> order(values.size());
  for (std::size_t i = 0; i < keys.size(); ++i) order[i] = static_cast<std::int64_t>(keys[i] & 0xffffffffu);
  return order;
}

// By sixteen rows, which stay in the nearest cache.
void transpose(const float* rows, std::int64_t count, std::int64_t dim, float scale, float* turned) {
  constexpr std::int64_t kTile = 16;
  for (std::int64_t first = 0; first < count; first += kTile) {
    const std::int64_t last = std::min(first + kTile, count);
    for (std::int64_t d = 0; d < dim; ++d)
      for (std::int64_t row = first; row < last; ++row) turned[d * count + row] = scale * rows[row * dim + d];
  }
}

std::vector<float> novelty(const BlockRows& b) {
  std::vector<float> length, mean(static_cast<std::size_t>(b.dim), 0.0f), result;
  for (std::int64_t j = 0; j < b.rows; ++j) {
    const float* key = b.keys.data() + j * b.padded_dim;
    length.push_back(std::max(norm(key, b.dim), 1e-20f));
    const float inverse = 1.0f / length.back();
    for (std::int64_t d = 0; d < b.dim; ++d) mean[static_cast<std::size_t>(d)] += key[d] * inverse;
  }
  const float mean_length = std::max(norm(mean.data(), b.dim), 1e-20f);
  for (std::int64_t j = 0; j < b.rows; ++j) {
    const float* key = b.keys.data() + j * b.padded_dim;
    result.push_back(1.0f -
                     dot(key, mean.data(), b.dim) / (length[static_cast<std::size_t>(j)] * mean_length));
  }
  return result;
}

std::vector<float> value_norms(const BlockRows& b) {
  std::vector<float> result;
  for (std::int64_t j = 0; j < b.rows; ++j) result.push_back(norm(b.values.data() + j * b.padded_dim, b.dim));
  return result;
}

float cosine(const BlockRows& b, std::int64_t i, std::int64_t j) {
  const float *x = b.keys.data() + i * b.padded_dim, *y = b.keys.data() + j * b.padded_dim;
  return dot(x, y, b.dim) / std::max(norm(x, b.dim) * norm(y, b.dim), 1e-20f);
}

}  // namespace kvtide
