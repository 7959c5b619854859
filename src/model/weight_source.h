// weight_source.h: checked tensors by role, for the parts of a model that load themselves (cca.h, experts.h).
//
// Ownership: what matrix() returns refers to memory of the Weights that are being loaded.
// Thread rules: one caller. Everything throws Error: bad_format (missing, or another shape), numeric (NaN or
// infinity).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul.h"
#include "model/config/tensor_rules.h"

namespace kvtide {

// Rows first, first + step, ... of one expert's `of` rows.
struct ExpertRows {
  int expert = 0;
  std::int64_t first = 0;
  std::int64_t of = 0;
  std::int64_t step = 1;  // every so many rows of them
};

// A matrix inside a tensor: `rows` of `columns` elements from the tensor's row `first` on; of a transposed one these are its
// columns and rows.
struct MatrixPart {
  std::vector<std::int64_t> shape;  // of the tensor, the last extent fastest
  std::int64_t first = 0;
  std::int64_t rows = 0, columns = 0;
  bool transposed = false;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual bool has(Role role) const = 0;
  // All elements, the last extent fastest.
  virtual std::vector<float> values(Role role, const std::vector<std::int64_t>& shape) = 0;
  virtual WeightMatrix matrix(Role role, std::int64_t rows, std::int64_t columns) = 0;
  // The rows `order` of a tensor with `of` rows, in that order.
  virtual WeightMatrix picked_matrix(Role role, std::int64_t of, std::int64_t columns,
                                     std::vector<std::int32_t> order) = 0;
  virtual WeightMatrix part_matrix(Role role, const MatrixPart& part) = 0;
  virtual WeightMatrix expert_matrix(Role role, std::int64_t rows, std::int64_t columns,
                                     const ExpertRows& place) = 0;
};

}  // namespace kvtide
