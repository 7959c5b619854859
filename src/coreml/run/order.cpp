// Operations that go along an axis in an order: sorting, running sums.
#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "coreml/run/convert.h"
#include "coreml/run/operations.h"
#include "coreml/run/rows.h"

namespace kvtide::coreml {
namespace ordering {
namespace {

// Places of a row's elements in order; equal ones stay in theirs.
std::vector<std::int32_t> sorted(const std::vector<float>& row, bool ascending) {
  std::vector<std::int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = row[static_cast<std::size_t>(a)], y = row[static_cast<std::size_t>(b)];
    return ascending ? x < y : x > y;
  });
  return order;
}

void topk(Call& call) {
  const Tensor x = call.in(0);
  const std::int64_t axis = call.axis(2, -1, x.rank());
  Rows rows = rows_along(call.run, x, {axis});
  const std::int64_t k = std::min(call.number(1, 1) == -1 ? rows.width : call.number(1, 1), rows.width);
  const bool ascending = call.flag(3, false);
  Shape lies = rows.tensor.shape;
  lies.back() = k;
  const Tensor values = call.run.tensors.take(x.dtype, lies),
               places = call.run.tensors.take(DataType::int32, lies);
  std::vector<float> row(static_cast<std::size_t>(rows.width)), best(static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < rows.count; ++i) {
    load(call.run.kernels, rows.tensor, i * rows.width, rows.width, row.data());
    const auto order = sorted(row, ascending);
    for (std::size_t j = 0; j < best.size(); ++j) best[j] = row[static_cast<std::size_t>(order[j])];
    store(call.run.kernels, best.data(), k, values, i * k);
    store(call.run.kernels, order.data(), k, places, i * k);
  }
  rows.shape[static_cast<std::size_t>(axis)] = k;
  call.give(put_back(call.run, rows, values), 0);
  if (call.results() > 1) call.give(put_back(call.run, rows, places), 1);
}

void argsort(Call& call) {
  const Tensor x = call.in(0);
  const Rows rows = rows_along(call.run, x, {call.axis(1, -1, x.rank())});
  const Tensor places = call.run.tensors.take(DataType::int32, rows.tensor.shape);
  std::vector<float> row(static_cast<std::size_t>(rows.width));
  for (std::int64_t i = 0; i < rows.count; ++i) {
    load(call.run.kernels, rows.tensor, i * rows.width, rows.width, row.data());
    store(call.run.kernels, sorted(row, call.flag(2, false)).data(), rows.width, places, i * rows.width);
  }
  call.give(put_back(call.run, rows, places));
}

template <class T>
void running_sums(Call& call, const Rows& rows, const Tensor& sums) {
  const bool exclusive = call.flag(2, false), backwards = call.flag(3, false);
  std::vector<T> row(static_cast<std::size_t>(rows.width));
  for (std::int64_t i = 0; i < rows.count; ++i) {
    load(call.run.kernels, rows.tensor, i * rows.width, rows.width, row.data());
    if (backwards) std::reverse(row.begin(), row.end());
    T total{};
    for (T& value : row) {
      const T before = total;
      total = static_cast<T>(total + value);
      value = exclusive ? before : total;
    }
    if (backwards) std::reverse(row.begin(), row.end());
    store(call.run.kernels, row.data(), rows.width, sums, i * rows.width);
  }
}

void cumsum(Call& call) {
  const Tensor x = call.in(0);
  const Rows rows = rows_along(call.run, x, {call.axis(1, 0, x.rank())});
  const Tensor sums = call.run.tensors.take(x.dtype, rows.tensor.shape);
  if (is_float(x.dtype))
    running_sums<float>(call, rows, sums);
  else
    running_sums<std::int32_t>(call, rows, sums);
  call.give(put_back(call.run, rows, sums));
}

}  // namespace
}  // namespace ordering

OperationRows order_operations() {
  using namespace ordering;
  return {operation("topk",
                    {"x", "k?", "axis?", "ascending?", "sort?", "return_indices?", "output_indices_dtype?"},
                    topk),
          operation("argsort", {"x", "axis?", "ascending?"}, argsort),
          operation("cumsum", {"x", "axis?", "exclusive?", "reverse?"}, cumsum)};
}

}  // namespace kvtide::coreml
