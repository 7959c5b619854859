// Softmax, and attention as one operation.
#include <cmath>
#include <limits>
#include <memory>

#include "base/text.h"
#include "coreml/run/batched.h"
#include "coreml/run/broadcast.h"
#include "coreml/run/convert.h"
#include "coreml/run/operations.h"
#include "coreml/run/rows.h"

namespace kvtide::coreml {
namespace attending {
namespace {

constexpr std::int64_t kQueries = 32;  // that share a head's keys and values
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// One row; elements up to the next multiple of 16 are room.
void soften_row(const Kernels& kernels, float* row, std::int64_t n) {
  for (std::int64_t i = n; i < to_sixteen(n); ++i) row[i] = kNothing;
  kernels.dense.soften(row, to_sixteen(n));
}

void softmax(Call& call) {
  const Tensor x = call.in(0);
  const Rows rows = rows_along(call.run, x, {call.axis(1, -1, x.rank())});
  const Tensor result = call.run.tensors.take(call.step.outputs[0].dtype, rows.tensor.shape);
  if (rows.width == 0) return call.give(put_back(call.run, rows, result));
  in_pieces(call.run, rows.count, std::max<std::int64_t>(1, 8192 / rows.width),
            [&](std::int64_t first, std::int64_t last) {
              std::vector<float> row(static_cast<std::size_t>(to_sixteen(rows.width)));
              for (std::int64_t i = first; i < last; ++i) {
                load(call.run.kernels, rows.tensor, i * rows.width, rows.width, row.data());
                soften_row(call.run.kernels, row.data(), rows.width);
                store(call.run.kernels, row.data(), rows.width, result, i * rows.width);
              }
            });
  call.give(put_back(call.run, rows, result));
}

struct Attention {
  std::int64_t heads = 1;  // batches included
  std::int64_t queries = 0, keys = 0, width = 0, value_width = 0;
  Shape mask_steps, front;  // steps of the mask by axis of [front.., queries, keys]
};

Attention attention_of(Call& call) {
  const Shape &q = call.in(0).shape, &k = call.in(1).shape, &v = call.in(2).shape;
  const std::size_t rank = q.size();
  bool fits = rank >= 2 && k.size() == rank && v.size() == rank && q[rank - 1] == k[rank - 1] &&
              k[rank - 2] == v[rank - 2];
  Attention a;
  for (std::size_t i = 0; fits && i + 2 < rank; ++i) {
    fits = q[i] == k[i] && q[i] == v[i];
    a.heads *= q[i];
    a.front.push_back(q[i]);
  }
  if (!fits)
    call.refuse(
        cat("queries, keys and values of shapes ", text_of(q), ", ", text_of(k), " and ", text_of(v)));
  a.queries = q[rank - 2];
  a.keys = k[rank - 2];
  a.width = q[rank - 1];
  a.value_width = v[rank - 1];
  if (!call.has(3)) return a;
  Shape full = a.front;
  full.insert(full.end(), {a.queries, a.keys});
  const Shape& mask = call.in(3).shape;
  a.mask_steps.assign(full.size(), 0);
  std::int64_t step = 1;
  if (mask.size() > full.size())
    call.refuse(cat("a mask of shape ", text_of(mask), " for scores of ", text_of(full)));
  for (std::size_t i = mask.size(); i-- > 0;) {
    const std::size_t axis = full.size() - mask.size() + i;
    if (mask[i] != 1 && mask[i] != full[axis])
      call.refuse(cat("a mask of shape ", text_of(mask), " for scores of ", text_of(full)));
    a.mask_steps[axis] = mask[i] == 1 ? 0 : step;
    step *= mask[i];
  }
  return a;
}

std::int64_t mask_row(const Attention& a, std::int64_t head, std::int64_t query) {
  std::int64_t at = query * a.mask_steps[a.front.size()];
  for (std::size_t axis = a.front.size(); axis-- > 0;) {
    at += head % a.front[axis] * a.mask_steps[axis];
    head /= a.front[axis];
  }
  return at;
}

void add_mask(const Kernels& kernels, const Attention& a, const Tensor& mask, std::int64_t first,
              float* scores, float* room) {
  const bool repeated = a.mask_steps.back() == 0;
  load(kernels, mask, first, repeated ? 1 : a.keys, room);
  for (std::int64_t i = 0; i < a.keys; ++i) {
    const float value = room[repeated ? 0 : i];
    if (mask.dtype != DataType::boolean)
      scores[i] += value;
    else if (value == 0.0f)
      scores[i] = kNothing;
  }
}

// Queries [q0, q1) of one head.
void attend_block(Call& call, const Attention& a, std::int64_t head, std::int64_t q0, std::int64_t q1,
                  const Tensor& out) {
  const Kernels& kernels = call.run.kernels;
  const std::int64_t rows = q1 - q0, deep = to_sixteen(a.width), wide = to_sixteen(a.value_width),
                     keys = to_sixteen(a.keys);
  std::vector<float> room(
      static_cast<std::size_t>((rows + keys) * deep + rows * keys + keys * wide + rows * wide + keys));
  float *q = room.data(), *k = q + rows * deep, *scores = k + keys * deep, *v = scores + rows * keys,
        *mixed = v + keys * wide, *mask = mixed + rows * wide;
  load_rows(kernels, call.in(0), (head * a.queries + q0) * a.width, rows, a.width, a.width, deep, q);
  load_rows(kernels, call.in(1), head * a.keys * a.width, a.keys, a.width, a.width, deep, k);
  load_rows(kernels, call.in(2), head * a.keys * a.value_width, a.keys, a.value_width, a.value_width, wide,
            v);
  kernels.dense.dots(q, rows, k, keys, deep, 1.0f / std::sqrt(static_cast<float>(a.width)), scores);
  for (std::int64_t i = 0; i < rows; ++i) {
    if (call.has(3)) add_mask(kernels, a, call.in(3), mask_row(a, head, q0 + i), scores + i * keys, mask);
    soften_row(kernels, scores + i * keys, a.keys);
  }
  kernels.dense.mix(scores, rows, keys, v, wide, mixed);
  for (std::int64_t i = 0; i < rows; ++i)
    store(kernels, mixed + i * wide, a.value_width, out, (head * a.queries + q0 + i) * a.value_width);
}

void attention(Call& call) {
  const Attention a = attention_of(call);
  Shape shape = call.in(0).shape;
  shape.back() = a.value_width;
  const Tensor& out = call.make(shape);
  if (a.keys == 0) call.refuse("attention to no keys");
  const std::int64_t blocks = (a.queries + kQueries - 1) / kQueries;
  call.run.threads.run(a.heads * blocks, [&](std::int64_t i) {
    const std::int64_t q0 = i % blocks * kQueries;
    attend_block(call, a, i / blocks, q0, std::min(a.queries, q0 + kQueries), out);
  });
}

}  // namespace
}  // namespace attending

OperationRows attention_operations() {
  using namespace attending;
  return {operation("softmax", {"x", "axis?"}, softmax),
          operation("scaled_dot_product_attention", {"query", "key", "value", "attn_mask?"}, attention)};
}

}  // namespace kvtide::coreml
