// Operations that lay the same elements out differently, and those that make tensors from a shape.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "coreml/run/convert.h"
#include "coreml/run/moves.h"
#include "coreml/run/operations.h"

namespace kvtide::coreml {
namespace shaping {
namespace {

using Sizes = std::vector<std::int64_t>;

// Results have the type of what they are made of: programs declare nothing else, but a reader may.
Tensor made_like(Call& call, const Tensor& x, Shape shape) {
  call.check_shape(shape);
  return call.run.tensors.take(x.dtype, std::move(shape));
}

void reshape_to(Call& call, const Tensor& x, Shape shape) {
  std::int64_t known = 1, guessed = -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && x.elements() != 0) {
      // Copied from x; axes are matched from the right.
      const auto from_right = static_cast<std::int64_t>(shape.size() - i);
      shape[i] = from_right <= x.rank() ? x.shape[static_cast<std::size_t>(x.rank() - from_right)] : 1;
    }
    if (shape[i] == -1) {
      if (guessed >= 0) call.refuse("two sizes of -1 in one shape");
      guessed = static_cast<std::int64_t>(i);
    } else if (shape[i] < 0) {
      call.refuse(cat("a size of ", shape[i], " in a shape"));
    } else {
      known *= shape[i];
    }
  }
  if (guessed >= 0) shape[static_cast<std::size_t>(guessed)] = known == 0 ? 0 : x.elements() / known;
  call.check_shape(shape);
  if (elements_in(shape) != x.elements())
    call.refuse(cat("shape ", text_of(shape), " for ", x.elements(), " elements of ", text_of(x.shape)));
  call.give(x.reshaped(std::move(shape)));
}

void reshape(Call& call) { reshape_to(call, call.in(0), call.numbers(1)); }

void reshape_like(
    Call& call) {  // begins and ends of the axes of x, and of those of ref tensors that replace them
  const Tensor& x = call.in(0);
  const auto begins = call.numbers(1), ends = call.numbers(2), from = call.numbers(4), to = call.numbers(5);
  Shape shape;
  std::int64_t next = 0;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const Tensor& like = call.in(3, i);
    for (; next < begins[i] && next < x.rank(); ++next)
      shape.push_back(x.shape[static_cast<std::size_t>(next)]);
    for (std::int64_t axis = from.at(i); axis < to.at(i) && axis < like.rank(); ++axis)
      shape.push_back(like.shape[static_cast<std::size_t>(axis)]);
    next = ends.at(i);
  }
  for (; next < x.rank(); ++next) shape.push_back(x.shape[static_cast<std::size_t>(next)]);
  reshape_to(call, x, shape);
}

void transpose(Call& call) {
  const Tensor x = call.in(0);
  const auto perm = call.axes(1, x.rank());
  if (static_cast<std::int64_t>(perm.size()) != x.rank())
    call.refuse(cat("perm names ", perm.size(), " of ", x.rank(), " axes"));
  const Shape from = steps_of(x.shape);
  Shape shape, steps;
  std::vector<bool> seen(perm.size());
  bool moves = false;
  std::int64_t last = -1;  // axes of size 1 may go anywhere
  for (const std::int64_t axis : perm) {
    const auto i = static_cast<std::size_t>(axis);
    if (seen[i]) call.refuse(cat("perm names axis ", axis, " twice"));
    seen[i] = true;
    shape.push_back(x.shape[i]);
    steps.push_back(from[i]);
    if (x.shape[i] == 1) continue;
    moves |= axis < last;
    last = axis;
  }
  if (!moves) return call.give(x.reshaped(shape));
  const Tensor result = made_like(call, x, shape);
  copy_strided(call.run, x, 0, shape, steps, result);
  call.give(result);
}

void expand_dims(Call& call) {
  const Tensor& x = call.in(0);
  const auto axes = call.numbers(1);
  const auto rank = static_cast<std::int64_t>(axes.size()) + x.rank();
  std::vector<bool> added(static_cast<std::size_t>(rank));
  for (std::int64_t axis : axes) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank || added[static_cast<std::size_t>(axis)])
      call.refuse(cat("axis ", axis, " of ", rank, " axes"));
    added[static_cast<std::size_t>(axis)] = true;
  }
  Shape shape;
  std::size_t next = 0;
  for (const bool one : added) shape.push_back(one ? 1 : x.shape[next++]);
  call.give(x.reshaped(std::move(shape)));
}

void squeeze(Call& call) {
  const Tensor& x = call.in(0);
  std::vector<bool> drop(x.shape.size());
  for (const std::int64_t axis : call.axes(1, x.rank())) {
    const bool one = x.shape[static_cast<std::size_t>(axis)] == 1;
    if (!one && call.has(1))
      call.refuse(cat("axis ", axis, " has size ", x.shape[static_cast<std::size_t>(axis)], ", not 1"));
    drop[static_cast<std::size_t>(axis)] = one;
  }
  Shape shape;
  for (std::size_t i = 0; i < drop.size(); ++i)
    if (!drop[i]) shape.push_back(x.shape[i]);
  call.give(x.reshaped(std::move(shape)));
}

void tile(Call& call) {
  const Tensor x = call.in(0);
  auto reps = call.numbers(1);
  if (static_cast<std::int64_t>(reps.size()) != x.rank())
    call.refuse(cat(reps.size(), " numbers of repeats for ", x.rank(), " axes"));
  Shape shape, walked, steps, to;
  const Shape from = steps_of(x.shape);
  bool same = true;
  for (std::size_t i = 0; i < reps.size(); ++i) {
    if (reps[i] == 0) reps[i] = 1;
    same &= reps[i] == 1;
    shape.push_back(x.shape[i] * reps[i]);
    walked.insert(walked.end(), {reps[i], x.shape[i]});
    steps.insert(steps.end(), {0, from[i]});
  }
  if (same) return call.give(x);
  const Tensor result = made_like(call, x, shape);
  copy_strided(call.run, x, 0, walked, steps, result);
  call.give(result);
}

// Values of one type: what a tuple of several is converted to before it becomes one tensor.
std::vector<Tensor> same_typed(Call& call, std::size_t parameter) {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < call.count(parameter); ++i) {
    const Tensor x = call.in(parameter, i);
    const DataType wanted = call.step.outputs[0].dtype;
    if (x.dtype == wanted) {
      values.push_back(x);
      continue;
    }
    Tensor converted = call.run.tensors.take(wanted, x.shape);
    std::vector<float> room(static_cast<std::size_t>(x.elements()));
    if (is_float(x.dtype)) {
      load(call.run.kernels, x, 0, x.elements(), room.data());
      store(call.run.kernels, room.data(), x.elements(), converted, 0);
    } else {
      std::vector<std::int32_t> whole(static_cast<std::size_t>(x.elements()));
      load(call.run.kernels, x, 0, x.elements(), whole.data());
      store(call.run.kernels, whole.data(), x.elements(), converted, 0);
    }
    values.push_back(std::move(converted));
  }
  return values;
}

// Pieces side by side along `axis` of the result.
void put_together(Call& call, const std::vector<Tensor>& values, const Shape& shape, std::size_t axis,
                  bool interleave) {
  const Tensor& out = call.make(shape);
  const Shape steps = steps_of(shape);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Shape to = steps;
    if (interleave) to[axis] *= static_cast<std::int64_t>(values.size());
    scatter_strided(call.run, values[i], values[i].shape, to, out,
                    interleave ? static_cast<std::int64_t>(i) * steps[axis] : at * steps[axis]);
    at += values[i].shape[axis];
  }
}

void concat(Call& call) {
  std::vector<Tensor> values = same_typed(call, 0);
  std::size_t rank = 0;
  for (Tensor& value : values) {
    if (value.shape.empty()) value.shape = {1};  // a number counts as a vector of one
    rank = std::max(rank, value.shape.size());
  }
  const auto axis = static_cast<std::size_t>(call.axis(1, 0, static_cast<std::int64_t>(rank)));
  const bool interleave = call.flag(2, false);
  Shape shape = values[0].shape;
  shape[axis < shape.size() ? axis : 0] = 0;
  for (const Tensor& value : values) {
    bool fits = value.shape.size() == shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) fits = i == axis || value.shape[i] == shape[i];
    if (interleave) fits = fits && value.shape == values[0].shape;
    if (!fits)
      call.refuse(cat("values of shapes ", text_of(values[0].shape), " and ", text_of(value.shape),
                      " along axis ", axis));
    shape[axis] += value.shape[axis];
  }
  put_together(call, values, shape, axis, interleave);
}

void stack(Call& call) {
  std::vector<Tensor> values = same_typed(call, 0);
  const auto axis = static_cast<std::size_t>(call.axis(1, 0, values[0].rank() + 1));
  Shape shape = values[0].shape;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), static_cast<std::int64_t>(values.size()));
  for (Tensor& value : values) {
    if (value.shape != values[0].shape && &value != &values[0])
      call.refuse(cat("values of shapes ", text_of(values[0].shape), " and ", text_of(value.shape)));
  }
  Shape one = shape;
  one[axis] = 1;
  for (Tensor& value : values) value.shape = one;
  put_together(call, values, shape, axis, false);
}

void split(Call& call) {
  const Tensor x = call.in(0);
  const auto axis = static_cast<std::size_t>(call.axis(3, 0, x.rank()));
  Sizes sizes = call.numbers(2);
  if (sizes.empty()) {
    const std::int64_t parts = call.number(1, static_cast<std::int64_t>(call.results()));
    if (parts < 1 || x.shape[axis] % parts != 0)
      call.refuse(cat(x.shape[axis], " elements in ", parts, " equal parts"));
    sizes.assign(static_cast<std::size_t>(parts), x.shape[axis] / parts);
  }
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += size;
  if (sizes.size() != call.results() || total != x.shape[axis])
    call.refuse(cat("parts of ", total, " elements in all, of an axis of ", x.shape[axis], ", for ",
                    call.results(), " results"));
  const Shape steps = steps_of(x.shape);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = x.shape;
    shape[axis] = sizes[i];
    const Tensor part = made_like(call, x, shape);
    copy_strided(call.run, x, first * steps[axis], shape, steps, part);
    call.give(part, i);
    first += sizes[i];
  }
}

void shape_of(Call& call) {
  const Shape shape = call.in(0).shape;
  const Tensor& out = call.make({static_cast<std::int64_t>(shape.size())});
  const std::vector<std::int32_t> sizes(shape.begin(), shape.end());
  store(call.run.kernels, sizes.data(), static_cast<std::int64_t>(sizes.size()), out, 0);
}

void fill_with(Call& call, Shape shape) {
  const Tensor& out = call.make(std::move(shape));
  const std::size_t size = element_bytes(out.dtype);
  if (out.elements() == 0) return;
  if (!call.has(1)) {
    std::memset(out.data.get(), 0, out.bytes());
    return;
  }
  if (is_float(call.in(1).dtype)) {
    const float value = call.real(1);
    store(call.run.kernels, &value, 1, out, 0);
  } else {
    const auto value = static_cast<std::int32_t>(call.number(1));
    store(call.run.kernels, &value, 1, out, 0);
  }
  for (std::int64_t i = 1; i < out.elements(); ++i)
    std::memcpy(out.data.get() + static_cast<std::size_t>(i) * size, out.data.get(), size);
}

void fill(Call& call) { fill_with(call, call.numbers(0)); }
void fill_like(Call& call) { fill_with(call, call.in(0).shape); }

void range_1d(Call& call) {
  if (is_float(call.step.outputs[0].dtype)) {
    const float start = call.real(0), end = call.real(1), step = call.real(2);
    if (step == 0.0f) call.refuse("a step of 0");
    const float count = std::max(0.0f, std::ceil((end - start) / step));
    if (!(count < 1e9f)) call.refuse("a range without end");
    const Tensor& out = call.make({static_cast<std::int64_t>(count)});
    for (std::int64_t i = 0; i < out.elements(); ++i) {
      const float value = start + static_cast<float>(i) * step;
      store(call.run.kernels, &value, 1, out, i);
    }
    return;
  }
  const std::int64_t start = call.number(0), end = call.number(1), step = call.number(2);
  if (step == 0) call.refuse("a step of 0");
  const std::int64_t count = step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step;
  const Tensor& out = call.make({std::max<std::int64_t>(0, count)});
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    const auto value = static_cast<std::int32_t>(start + i * step);
    store(call.run.kernels, &value, 1, out, i);
  }
}

void band_part(Call& call) {
  const Tensor x = call.in(0);
  if (x.rank() < 2) call.refuse(cat("a band of a tensor of shape ", text_of(x.shape)));
  const std::int64_t lower = call.number(1, -1), upper = call.number(2, -1);
  const std::int64_t rows = x.shape[x.shape.size() - 2], columns = x.shape.back();
  const Tensor result = made_like(call, x, x.shape);
  std::memcpy(result.data.get(), x.data.get(), x.bytes());
  const std::size_t size = element_bytes(x.dtype);
  for (std::int64_t row = 0; columns > 0 && row < x.elements() / columns; ++row)
    for (std::int64_t n = 0; n < columns; ++n) {
      const std::int64_t m = row % rows;
      if ((lower < 0 || m - n <= lower) && (upper < 0 || n - m <= upper)) continue;
      std::memset(result.data.get() + static_cast<std::size_t>(row * columns + n) * size, 0, size);
    }
  call.give(result);
}

// Where each axis of a padded tensor takes its elements from; -1: the constant.
Sizes pad_sources(Call& call, std::int64_t size, std::int64_t before, std::int64_t after,
                  std::string_view mode) {
  Sizes from;
  for (std::int64_t i = -before; i < size + after; ++i) {
    if (i >= 0 && i < size)
      from.push_back(i);
    else if (mode == "constant")
      from.push_back(-1);
    else if (mode == "replicate")
      from.push_back(std::clamp<std::int64_t>(i, 0, size - 1));
    else if (size > 1)
      from.push_back(i < 0 ? std::min(-i, size - 1) : std::max<std::int64_t>(0, 2 * (size - 1) - i));
    else
      call.refuse("a reflection of one element");
  }
  return from;
}

void pad(Call& call) {
  const Tensor x = call.in(0);
  const auto amounts = call.numbers(1);
  const std::string_view mode = call.text(2, "constant");
  if (mode != "constant" && mode != "reflect" && mode != "replicate") call.refuse(cat("mode ", quoted(mode)));
  const std::size_t rank = x.shape.size();
  if (amounts.size() % 2 != 0 || amounts.size() / 2 > rank)
    call.refuse(cat(amounts.size(), " amounts for ", rank, " axes"));
  std::vector<Sizes> from(rank);
  Shape shape;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t pair = i + amounts.size() / 2;  // the last axes are padded
    const std::int64_t before = pair < rank ? 0 : amounts[(pair - rank) * 2],
                       after = pair < rank ? 0 : amounts[(pair - rank) * 2 + 1];
    if (before < 0 || after < 0) call.refuse("a negative amount");
    shape.push_back(x.shape[i] + before + after);
    call.check_shape(shape);
    from[i] = pad_sources(call, x.shape[i], before, after, mode);
  }
  const Tensor result = made_like(call, x, shape);
  const std::size_t size = element_bytes(x.dtype);
  alignas(8) std::byte constant[8] = {};
  if (call.has(3)) {
    const Tensor one{x.dtype, {}, std::shared_ptr<std::byte>(std::shared_ptr<void>(), constant)};
    const float value = call.real(3);
    store(call.run.kernels, &value, 1, one, 0);
  }
  const Shape steps = steps_of(x.shape);
  for (std::int64_t i = 0; i < result.elements(); ++i) {
    std::int64_t rest = i, at = 0;
    bool inside = true;
    for (std::size_t axis = rank; axis-- > 0;) {
      const std::int64_t source = from[axis][static_cast<std::size_t>(rest % shape[axis])];
      inside &= source >= 0;
      at += source * steps[axis];
      rest /= shape[axis];
    }
    std::memcpy(result.data.get() + static_cast<std::size_t>(i) * size,
                inside ? x.data.get() + static_cast<std::size_t>(at) * size : constant, size);
  }
  call.give(result);
}

void reverse(Call& call) {
  const Tensor x = call.in(0);
  Shape steps = steps_of(x.shape);
  std::int64_t first = 0;
  if (x.elements() == 0) return call.give(x);
  for (const std::int64_t axis : call.axes(1, x.rank())) {
    const auto i = static_cast<std::size_t>(axis);
    first += (x.shape[i] - 1) * steps[i];
    steps[i] = -steps[i];
  }
  const Tensor result = made_like(call, x, x.shape);
  copy_strided(call.run, x, first, x.shape, steps, result);
  call.give(result);
}

void one_hot(Call& call) {
  const auto indices = call.numbers(0);
  const std::int64_t classes = call.number(1);
  Shape shape = call.in(0).shape;
  const auto axis = static_cast<std::size_t>(call.axis(2, -1, static_cast<std::int64_t>(shape.size()) + 1));
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), classes);
  const float on = call.real(3, 1.0f), off = call.real(4, 0.0f);
  const Tensor& out = call.make(shape);
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    const std::int64_t of = i / (inner * classes) * inner + i % inner;
    const float value = indices[static_cast<std::size_t>(of)] == i / inner % classes ? on : off;
    store(call.run.kernels, &value, 1, out, i);
  }
}

}  // namespace
}  // namespace shaping

OperationRows shape_operations() {
  using namespace shaping;
  return {
      operation("reshape", {"x", "shape"}, reshape),
      operation("reshape_like", {"x", "begins", "ends", "ref_tensors*", "ref_begins", "ref_ends"},
                reshape_like),
      operation("transpose", {"x", "perm"}, transpose),
      operation("expand_dims", {"x", "axes"}, expand_dims),
      operation("squeeze", {"x", "axes?"}, squeeze),
      operation("tile", {"x", "reps"}, tile),
      operation("concat", {"values*", "axis?", "interleave?"}, concat),
      operation("stack", {"values*", "axis?"}, stack),
      operation("split", {"x", "num_splits?", "split_sizes?", "axis?"}, split),
      operation("shape", {"x"}, shape_of),
      operation("fill", {"shape", "value?"}, fill),
      operation("fill_like", {"ref_tensor", "value?"}, fill_like),
      operation("range_1d", {"start", "end", "step"}, range_1d),
      operation("band_part", {"x", "lower?", "upper?"}, band_part),
      operation("pad", {"x", "pad", "mode?", "constant_val?"}, pad),
      operation("reverse", {"x", "axes?"}, reverse),
      operation("one_hot", {"indices", "one_hot_vector_size", "axis?", "on_value?", "off_value?"}, one_hot)};
}

}  // namespace kvtide::coreml
