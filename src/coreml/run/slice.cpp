// Slices, read and replaced.
#include <cstring>

#include "base/text.h"
#include "coreml/run/journal.h"
#include "coreml/run/moves.h"
#include "coreml/run/operations.h"

namespace kvtide::coreml {
namespace slicing {
namespace {

// The part of a tensor that begin, end, stride and the masks name.
struct Part {
  std::int64_t first = 0;  // element
  Shape shape;             // squeezed axes have size 1
  Shape steps;
  std::vector<bool> squeezed;

  Shape kept() const {
    Shape result;
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (!squeezed[i]) result.push_back(shape[i]);
    return result;
  }
  // Elements that lie one behind another.
  bool dense() const {
    std::int64_t step = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (shape[i] == 1) continue;
      if (steps[i] != step) return false;
      step *= shape[i];
    }
    return true;
  }
};

// Parameters from `parameter` on: begin, end, stride, begin_mask, end_mask, squeeze_mask.
Part part_of(Call& call, const Tensor& x, std::size_t parameter) {
  const auto begin = call.numbers(parameter), end = call.numbers(parameter + 1),
             stride = call.numbers(parameter + 2);
  const auto no_begin = call.numbers(parameter + 3), no_end = call.numbers(parameter + 4),
             squeeze = call.numbers(parameter + 5);
  const std::size_t rank = x.shape.size();
  const auto fits = [&](const std::vector<std::int64_t>& list) {
    return list.empty() || list.size() == rank;
  };
  if (begin.size() != rank || end.size() != rank || !fits(stride) || !fits(no_begin) || !fits(no_end) ||
      !fits(squeeze))
    call.refuse(cat("begin, end, stride and masks of ", begin.size(), " and ", end.size(),
                    " numbers for a tensor of shape ", text_of(x.shape)));
  const auto set = [](const std::vector<std::int64_t>& mask, std::size_t i) {
    return !mask.empty() && mask[i] != 0;
  };
  Part part;
  const Shape steps = steps_of(x.shape);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t size = x.shape[i], step = stride.empty() || set(squeeze, i) ? 1 : stride[i];
    if (step == 0) call.refuse(cat("a stride of 0 along axis ", i));
    std::int64_t from = begin[i] < 0 ? begin[i] + size : begin[i], to = end[i] < 0 ? end[i] + size : end[i];
    if (set(squeeze, i)) {
      if (from < 0 || from >= size)
        call.refuse(cat("index ", begin[i], " of axis ", i, ", which has size ", size));
      to = from + 1;
    } else {
      if (set(no_begin, i)) from = step > 0 ? 0 : size - 1;
      if (set(no_end, i)) to = step > 0 ? size : -1;
      from = std::clamp<std::int64_t>(from, 0, step > 0 ? size : size - 1);
      to = std::clamp<std::int64_t>(to, -1, size);
    }
    const std::int64_t count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    part.shape.push_back(std::max<std::int64_t>(0, count));
    part.steps.push_back(steps[i] * step);
    part.squeezed.push_back(set(squeeze, i));
    part.first += from * steps[i];
  }
  return part;
}

// What lies dense is seen where it is: a layer of a state costs nothing.
void give_part(Call& call, const Tensor& x, const Part& part) {
  if (elements_in(part.shape) != 0 && part.dense()) return call.give(x.view(part.first, part.kept()));
  call.check_shape(part.shape);
  const Tensor result = call.run.tensors.take(x.dtype, part.kept());
  copy_strided(call.run, x, part.first, part.shape, part.steps, result);
  call.give(result);
}

void slice_by_index(Call& call) {
  const Tensor x = call.in(0);
  give_part(call, x, part_of(call, x, 1));
}

void slice_by_size(Call& call) {
  const Tensor x = call.in(0);
  const auto begin = call.numbers(1), size = call.numbers(2);
  if (begin.size() != x.shape.size() || size.size() != x.shape.size())
    call.refuse(cat("begin and size of ", begin.size(), " and ", size.size(),
                    " numbers for a tensor of shape ", text_of(x.shape)));
  Part part;
  part.steps = steps_of(x.shape);
  part.squeezed.assign(x.shape.size(), false);
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    const std::int64_t from = begin[i] < 0 ? begin[i] + x.shape[i] : begin[i];
    const std::int64_t count = size[i] == -1 ? x.shape[i] - from : size[i];
    if (from < 0 || count < 0 || from + count > x.shape[i])
      call.refuse(
          cat("elements [", from, ", ", from + count, ") of axis ", i, ", which has size ", x.shape[i]));
    part.shape.push_back(count);
    part.first += from * part.steps[i];
  }
  give_part(call, x, part);
}

void slice_update(Call& call) {
  const Tensor x = call.in(0), update = call.in(1);
  const Part part = part_of(call, x, 2);
  if (update.elements() != elements_in(part.shape))
    call.refuse(cat("an update of shape ", text_of(update.shape), " for a slice of shape ",
                    text_of(part.kept()), " of ", text_of(x.shape)));
  if (update.dtype != x.dtype) call.refuse("an update of another type than the tensor");
  Tensor result = x;
  if (call.in_place) {
    if (call.journal != nullptr) call.journal->save_part(call.run, x, part.first, part.shape, part.steps);
  } else {
    result = call.run.tensors.take(x.dtype, x.shape);
    std::memcpy(result.data.get(), x.data.get(), x.bytes());
  }
  scatter_strided(call.run, update, part.shape, part.steps, result, part.first);
  call.give(result);
}

}  // namespace
}  // namespace slicing

OperationRows slice_operations() {
  using namespace slicing;
  return {operation("slice_by_index",
                    {"x", "begin", "end", "stride?", "begin_mask?", "end_mask?", "squeeze_mask?"},
                    slice_by_index),
          operation("slice_by_size", {"x", "begin", "size"}, slice_by_size),
          operation("slice_update",
                    {"x", "update", "begin", "end", "stride?", "begin_mask?", "end_mask?", "squeeze_mask?"},
                    slice_update)};
}

}  // namespace kvtide::coreml
