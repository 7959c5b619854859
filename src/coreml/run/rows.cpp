#include "coreml/run/rows.h"

#include <algorithm>

#include "coreml/run/moves.h"

namespace kvtide::coreml {
namespace {

// Axes in the order in which `rows` has them.
std::vector<std::size_t> row_order(const Rows& rows) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rows.shape.size(); ++i)
    if (!std::binary_search(rows.axes.begin(), rows.axes.end(), static_cast<std::int64_t>(i)))
      order.push_back(i);
  for (const std::int64_t axis : rows.axes) order.push_back(static_cast<std::size_t>(axis));
  return order;
}

}  // namespace

bool Rows::moved() const {
  const auto first = static_cast<std::int64_t>(shape.size() - axes.size());
  return !axes.empty() && axes.front() != first;
}

Shape Rows::without(bool keep_dims) const {
  Shape result;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(i));
    if (!reduced)
      result.push_back(shape[i]);
    else if (keep_dims)
      result.push_back(1);
  }
  return result;
}

Rows rows_along(Runtime& run, const Tensor& tensor, std::vector<std::int64_t> axes) {
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  Rows rows{tensor, tensor.shape, std::move(axes)};
  for (const std::int64_t axis : rows.axes) rows.width *= tensor.shape[static_cast<std::size_t>(axis)];
  for (const std::int64_t size : rows.without(false)) rows.count *= size;
  if (!rows.moved()) return rows;
  Shape shape, steps;
  const Shape from = steps_of(tensor.shape);
  for (const std::size_t axis : row_order(rows)) {
    shape.push_back(tensor.shape[axis]);
    steps.push_back(from[axis]);
  }
  rows.tensor = run.tensors.take(tensor.dtype, shape);
  copy_strided(run, tensor, 0, shape, steps, rows.tensor);
  return rows;
}

Tensor put_back(Runtime& run, const Rows& rows, const Tensor& result) {
  if (!rows.moved()) return result.reshaped(rows.shape);
  Shape shape, steps;
  const Shape to = steps_of(rows.shape);
  for (const std::size_t axis : row_order(rows)) {
    shape.push_back(rows.shape[axis]);
    steps.push_back(to[axis]);
  }
  Tensor out = run.tensors.take(result.dtype, rows.shape);
  scatter_strided(run, result, shape, steps, out, 0);
  return out;
}

}  // namespace kvtide::coreml
