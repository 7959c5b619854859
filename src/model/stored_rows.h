// stored_rows.h: the rows of a weight matrix as packing wants them, whatever the tensor's order in its file.
//
// A tensor may hold more rows than the matrix (queries, keys and values in one), its rows in another order,
// or inputs times outputs instead of outputs times inputs. 8-bit integers become q8_0 blocks whose scale is
// 1: exactly the same integers; their own scales are applied to the products. mxfp4 becomes q5_0, whose integers hold all
// of its elements: exactly the same numbers, and products in integers. (Scales below 2^-24, the smallest that a q5_0 block
// can have, are rounded to that; one above 2^15 makes a block that is not finite.)
// Ownership: refers to the tensor.
// Thread rules: const from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/checkpoint.h"

namespace kvtide {

class StoredRows {
 public:
  // The matrix is rows [first, first + rows) of the tensor, each of `columns`; row i is row order[i] of them.
  StoredRows(const StoredTensor& tensor, std::int64_t first, std::int64_t rows, std::int64_t columns,
             const std::vector<std::int32_t>* order);

  DType dtype() const { return dtype_; }                 // of what gather() gives
  std::int64_t row_bytes() const { return row_bytes_; }  // of a row in the file, were it not transposed
  bool in_place() const { return in_place_; }            // gather() gives pointers into the file

  // pointers[0 .. count): rows from `row` on. What is not in place is put together in `scratch`.
  void gather(std::int64_t row, std::int64_t count, const std::byte** pointers,
              std::vector<std::byte>& scratch) const;

 private:
  void fill(std::int64_t row, std::byte* out) const;
  void fill_mxfp4(std::int64_t row, std::byte* out) const;

  const StoredTensor& tensor_;
  const std::vector<std::int32_t>* order_;
  DType dtype_;
  bool int8_, mxfp4_, in_place_;
  std::int64_t first_, columns_, stride_, element_, row_bytes_, gathered_bytes_;
  std::int64_t stacked_rows_;  // of one of several matrices that lie one behind the other
};

}  // namespace kvtide
