// Reductions along axes.
#include <cmath>
#include <limits>

#include "base/text.h"
#include "coreml/run/convert.h"
#include "coreml/run/operations.h"
#include "coreml/run/rows.h"

namespace kvtide::coreml {
namespace reducing {
namespace {

// Sums are made in f64: their order then says nothing about an f32 result.
using Reduction = double (*)(const float* x, std::int64_t n);

double sum(const float* x, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}
double mean(const float* x, std::int64_t n) { return n == 0 ? 0.0 : sum(x, n) / static_cast<double>(n); }
double sum_square(const float* x, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}
double l2_norm(const float* x, std::int64_t n) { return std::sqrt(sum_square(x, n)); }
double l1_norm(const float* x, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += std::fabs(static_cast<double>(x[i]));
  return total;
}
double prod(const float* x, std::int64_t n) {
  double total = 1;
  for (std::int64_t i = 0; i < n; ++i) total *= static_cast<double>(x[i]);
  return total;
}
double highest(const float* x, std::int64_t n) {
  float top = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < n; ++i) top = x[i] > top || std::isnan(x[i]) ? x[i] : top;
  return static_cast<double>(top);
}
double lowest(const float* x, std::int64_t n) {
  float bottom = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < n; ++i) bottom = x[i] < bottom || std::isnan(x[i]) ? x[i] : bottom;
  return static_cast<double>(bottom);
}
double log_sum(const float* x, std::int64_t n) { return std::log(sum(x, n)); }
double log_sum_exp(const float* x, std::int64_t n) {
  const double top = highest(x, n);
  if (!std::isfinite(top)) return top;
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += std::exp(static_cast<double>(x[i]) - top);
  return top + std::log(total);
}

template <Reduction kReduce>
void reduce(Call& call) {
  const Rows rows = rows_along(call.run, call.in(0), call.axes(1, call.in(0).rank()));
  const Tensor& out = call.make(rows.without(call.flag(2, false)));
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, rows.width));
  in_pieces(call.run, rows.count, grain, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> row(static_cast<std::size_t>(rows.width));
    for (std::int64_t i = first; i < last; ++i) {
      load(call.run.kernels, rows.tensor, i * rows.width, rows.width, row.data());
      const double value = kReduce(row.data(), rows.width);
      if (is_float(out.dtype)) {
        const auto rounded = static_cast<float>(value);
        store(call.run.kernels, &rounded, 1, out, i);
      } else {
        const auto whole = static_cast<std::int32_t>(value);
        store(call.run.kernels, &whole, 1, out, i);
      }
    }
  });
}

// The first of the best; NaN wins, as in NumPy.
template <bool kMost>
void arg_best(Call& call) {
  const Tensor x = call.in(0);
  const Rows rows = rows_along(call.run, x, {call.axis(1, -1, x.rank())});
  if (rows.width == 0) call.refuse("the largest of no elements");
  const Tensor& out = call.make(rows.without(call.flag(2, false)));
  std::vector<float> row(static_cast<std::size_t>(rows.width));
  for (std::int64_t i = 0; i < rows.count; ++i) {
    load(call.run.kernels, rows.tensor, i * rows.width, rows.width, row.data());
    std::int32_t best = 0;
    for (std::int32_t k = 1; k < rows.width; ++k) {
      const float value = row[static_cast<std::size_t>(k)], top = row[static_cast<std::size_t>(best)];
      if (std::isnan(top)) break;
      if ((kMost ? value > top : value < top) || std::isnan(value)) best = k;
    }
    store(call.run.kernels, &best, 1, out, i);
  }
}

}  // namespace
}  // namespace reducing

OperationRows reduce_operations() {
  using namespace reducing;
  return {operation("reduce_mean", {"x", "axes?", "keep_dims?"}, reduce<mean>),
          operation("reduce_sum", {"x", "axes?", "keep_dims?"}, reduce<sum>),
          operation("reduce_max", {"x", "axes?", "keep_dims?"}, reduce<highest>),
          operation("reduce_min", {"x", "axes?", "keep_dims?"}, reduce<lowest>),
          operation("reduce_prod", {"x", "axes?", "keep_dims?"}, reduce<prod>),
          operation("reduce_l1_norm", {"x", "axes?", "keep_dims?"}, reduce<l1_norm>),
          operation("reduce_l2_norm", {"x", "axes?", "keep_dims?"}, reduce<l2_norm>),
          operation("reduce_sum_square", {"x", "axes?", "keep_dims?"}, reduce<sum_square>),
          operation("reduce_log_sum", {"x", "axes?", "keep_dims?"}, reduce<log_sum>),
          operation("reduce_log_sum_exp", {"x", "axes?", "keep_dims?"}, reduce<log_sum_exp>),
          operation("reduce_argmax", {"x", "axis?", "keep_dims?", "output_dtype?"}, arg_best<true>),
          operation("reduce_argmin", {"x", "axis?", "keep_dims?", "output_dtype?"}, arg_best<false>)};
}

}  // namespace kvtide::coreml
