// rows.h: a tensor whose chosen axes lie last, so that what happens along them happens to rows.
#pragma once

#include <vector>

#include "coreml/run/runtime.h"

namespace kvtide::coreml {

struct Rows {
  Tensor tensor;                   // chosen axes last, the others in their order before them
  Shape shape;                     // of the tensor as it was
  std::vector<std::int64_t> axes;  // ascending
  std::int64_t count = 1;          // rows
  std::int64_t width = 1;          // elements of one

  bool moved() const;
  Shape without(bool keep_dims) const;  // the shape with the axes reduced
};

Rows rows_along(Runtime& run, const Tensor& tensor, std::vector<std::int64_t> axes);
// Room for a result that lies like `rows`, and that result with its axes back where they were.
Tensor put_back(Runtime& run, const Rows& rows, const Tensor& result);

}  // namespace kvtide::coreml
