// block_rows.h: the rows of a block as floats, and what they tell by themselves, before any query is asked:
// how unlike the others a key is, how large a value; and orders by such numbers.
//
// Shapes in brackets; padded rows and columns are zero. Pure functions; sums in one order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "tensor/dtype.h"

namespace kvtide {

// The rows of a block as floats; `padded` rows and columns are multiples of 16, zero where nothing is.
struct BlockRows {
  std::int64_t rows = 0, padded_rows = 0, dim = 0, padded_dim = 0;
  std::vector<float> keys, values;  // [padded_rows][padded_dim]
  std::vector<float> bias;          // [rows]
};

// Queries of all heads that share the KV head, each with the log mass of its softmax over everything.
struct ReferenceRows {
  std::int64_t count = 0;
  std::vector<float> queries;   // [count][padded_dim], turned to the positions they stand for
  std::vector<float> log_mass;  // [count] of the whole softmax, nats
};

// A row as it is kept, as `dim` floats: the codec's bits, by the table's kernel where it has one.
void floats_of_row(const Kernels& kernels, DType type, const std::byte* row, std::int64_t dim, float* out);

// A block of zeros for `rows` rows of `dim` elements.
BlockRows padded_block(std::int64_t rows, std::int64_t dim);

// turned[dim][count] = rows[count][dim], scaled.
void transpose(const float* rows, std::int64_t count, std::int64_t dim, float scale, float* turned);

float dot(const float* x, const float* y, std::int64_t n);
// Of the keys of rows i and j.
float cosine(const BlockRows& block, std::int64_t i, std::int64_t j);

// [rows] 1 - cosine of the key to the mean direction.
std::vector<float> novelty(const BlockRows& block);
// [rows]
std::vector<float> value_norms(const BlockRows& block);

// Numbers of `values`: the `first` largest in order, ties to the lower index; then the others in any order.
std::vector<std::int64_t> order_of(const std::vector<float>& values, std::size_t first);

}  // namespace kvtide
