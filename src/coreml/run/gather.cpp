// Elements looked up by index, and written by index.
#include <algorithm>

#include "base/text.h"
#include "coreml/run/convert.h"
#include "coreml/run/moves.h"
#include "coreml/run/operations.h"

namespace kvtide::coreml {
namespace indexing {
namespace {

std::int64_t checked_index(const Call& call, std::int64_t index, std::int64_t size) {
  const std::int64_t counted = index < 0 ? index + size : index;
  if (counted < 0 || counted >= size) call.refuse(cat("index ", index, " of an axis of size ", size));
  return counted;
}

std::int64_t product(const Shape& shape, std::size_t first, std::size_t last) {
  std::int64_t result = 1;
  for (std::size_t i = first; i < last; ++i) result *= shape[i];
  return result;
}

Shape joined_shape(const Shape& a, std::size_t a0, std::size_t a1, const Shape& b, std::size_t b0,
                   const Shape& c, std::size_t c0) {
  Shape shape(a.begin() + static_cast<std::ptrdiff_t>(a0), a.begin() + static_cast<std::ptrdiff_t>(a1));
  shape.insert(shape.end(), b.begin() + static_cast<std::ptrdiff_t>(b0), b.end());
  shape.insert(shape.end(), c.begin() + static_cast<std::ptrdiff_t>(c0), c.end());
  return shape;
}

// Rows of a table that stays packed: an embedding.
void gather_rows(Call& call, const std::vector<std::int64_t>& indices, const Shape& shape) {
  const Slot& table = call.slot(0);
  const Shape from = table.tensor.shape;
  const std::int64_t inner = product(from, 1, from.size());
  const Tensor& out = call.make(shape);
  in_pieces(call.run, static_cast<std::int64_t>(indices.size()), 8,
            [&](std::int64_t first, std::int64_t last) {
              std::vector<float> row(static_cast<std::size_t>(inner));
              for (std::int64_t i = first; i < last; ++i) {
                const std::int64_t index = checked_index(call, indices[static_cast<std::size_t>(i)], from[0]);
                if (call.step.weight)
                  call.step.weight->row(call.run.kernels, index, row.data());
                else
                  table.compressed->decode(call.run.kernels, index * inner, inner, row.data());
                store(call.run.kernels, row.data(), inner, out, i * inner);
              }
            });
}

void gather(Call& call) {
  const Tensor x = call.in(0);
  const auto indices = call.numbers(1);
  const Shape by = call.in(1).shape;
  const auto axis = static_cast<std::size_t>(call.axis(2, 0, x.rank()));
  const auto batch = static_cast<std::size_t>(call.number(3, 0));
  if (batch > axis || batch > by.size()) call.refuse(cat(batch, " batch axes for axis ", axis));
  const Shape shape = joined_shape(x.shape, 0, axis, by, batch, x.shape, axis + 1);
  if (x.data == nullptr) return gather_rows(call, indices, shape);
  const Tensor result = call.run.tensors.take(x.dtype, shape);
  const std::int64_t batches = product(x.shape, 0, batch), outer = product(x.shape, batch, axis),
                     size = x.shape[axis], inner = product(x.shape, axis + 1, x.shape.size()),
                     each = product(by, batch, by.size());
  for (std::size_t i = 0; i < batch; ++i)
    if (by[i] != x.shape[i])
      call.refuse(cat("batch axes of ", text_of(x.shape), " and ", text_of(by), " differ"));
  const auto bytes = static_cast<std::size_t>(inner) * element_bytes(x.dtype);
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t i = 0; i < each; ++i) {
        const std::int64_t index = checked_index(call, indices[static_cast<std::size_t>(b * each + i)], size);
        const auto to = static_cast<std::size_t>((b * outer + o) * each + i),
                   from = static_cast<std::size_t>((b * outer + o) * size + index);
        std::copy_n(x.data.get() + from * bytes, bytes, result.data.get() + to * bytes);
      }
  call.give(result);
}

// Walks indices as they lie along `axis` of another tensor: body(number of the index, element of the tensor).
template <class Body>
void along_axis(const Call& call, const Shape& data, const Shape& by,
                const std::vector<std::int64_t>& indices, std::size_t axis, const Body& body) {
  const Shape steps = steps_of(data);
  bool fits = by.size() == data.size();
  for (std::size_t i = 0; fits && i < by.size(); ++i) fits = i == axis || by[i] <= data[i];
  if (!fits) call.refuse(cat("indices of shape ", text_of(by), " along axis ", axis, " of ", text_of(data)));
  for (std::int64_t i = 0; i < elements_in(by); ++i) {
    std::int64_t rest = i, at = 0;
    for (std::size_t k = by.size(); k-- > 0;) {
      const std::int64_t place =
          k == axis ? checked_index(call, indices[static_cast<std::size_t>(i)], data[k]) : rest % by[k];
      at += place * steps[k];
      rest /= by[k];
    }
    body(i, at);
  }
}

void gather_along_axis(Call& call) {
  const Tensor x = call.in(0);
  const auto indices = call.numbers(1);
  const auto axis = static_cast<std::size_t>(call.axis(2, 0, x.rank()));
  const Tensor result = call.run.tensors.take(x.dtype, call.in(1).shape);
  const std::size_t size = element_bytes(x.dtype);
  along_axis(call, x.shape, call.in(1).shape, indices, axis, [&](std::int64_t i, std::int64_t at) {
    std::copy_n(x.data.get() + static_cast<std::size_t>(at) * size, size,
                result.data.get() + static_cast<std::size_t>(i) * size);
  });
  call.give(result);
}

// The element that an index of several axes names, behind `batch` axes that both tensors share: body(number, element).
template <class Body>
std::int64_t by_tuples(const Call& call, const Shape& data, const Shape& by,
                       const std::vector<std::int64_t>& indices, std::size_t batch, const Body& body) {
  if (by.empty() || batch >= by.size() || batch + static_cast<std::size_t>(by.back()) > data.size())
    call.refuse(cat("indices of shape ", text_of(by), " into ", text_of(data)));
  const auto depth = static_cast<std::size_t>(by.back());
  const Shape steps = steps_of(data);
  const std::int64_t inner = product(data, batch + depth, data.size());
  const std::int64_t each = product(by, batch, by.size() - 1), batches = product(by, 0, batch);
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t i = 0; i < each; ++i) {
      std::int64_t at = batch == 0 ? 0 : b * steps[batch - 1];
      for (std::size_t k = 0; k < depth; ++k)
        at +=
            steps[batch + k] *
            checked_index(call, indices[static_cast<std::size_t>(b * each + i) * depth + k], data[batch + k]);
      body(b * each + i, at);
    }
  return inner;
}

void gather_nd(Call& call) {
  const Tensor x = call.in(0);
  const Shape by = call.in(1).shape;
  const auto indices = call.numbers(1);
  const auto batch = static_cast<std::size_t>(call.number(2, 0));
  std::vector<std::int64_t> places(static_cast<std::size_t>(by.empty() ? 0 : product(by, 0, by.size() - 1)));
  const std::int64_t inner =
      by_tuples(call, x.shape, by, indices, batch,
                [&](std::int64_t i, std::int64_t at) { places[static_cast<std::size_t>(i)] = at; });
  const Shape shape =
      joined_shape(by, 0, by.size() - 1, {}, 0, x.shape, batch + static_cast<std::size_t>(by.back()));
  const Tensor result = call.run.tensors.take(x.dtype, shape);
  const std::size_t size = element_bytes(x.dtype), bytes = static_cast<std::size_t>(inner) * size;
  for (std::size_t i = 0; i < places.size(); ++i)
    std::copy_n(x.data.get() + static_cast<std::size_t>(places[i]) * size, bytes,
                result.data.get() + i * bytes);
  call.give(result);
}

float combined(std::string_view mode, float old, float update) {
  if (mode == "add") return old + update;
  if (mode == "sub") return old - update;
  if (mode == "mul") return old * update;
  if (mode == "div") return old / update;
  if (mode == "max") return std::max(old, update);
  if (mode == "min") return std::min(old, update);
  return update;
}

// A copy of the data that updates are written to, one element at a time, in their order.
class Target {
 public:
  Target(Call& call, std::size_t mode_parameter)
      : call_(call),
        data_(call.in(0)),
        updates_(call.run, call.in(2)),
        mode_(call.text(mode_parameter, "add")),
        result_(call.run.tensors.take(data_.dtype, data_.shape)) {
    for (const std::string_view known : {"add", "sub", "mul", "div", "max", "min", "update"})
      if (mode_ == known) {
        std::copy_n(data_.data.get(), data_.bytes(), result_.data.get());
        return;
      }
    call.refuse(cat("mode ", quoted(mode_), "; add, sub, mul, div, max, min and update are known"));
  }
  void write(std::int64_t at, std::int64_t update) {
    float value = 0;
    load(call_.run.kernels, result_, at, 1, &value);
    value = combined(mode_, value, updates_[update]);
    store(call_.run.kernels, &value, 1, result_, at);
  }
  void done() { call_.give(result_); }

 private:
  Call& call_;
  Tensor data_;
  Floats updates_;
  std::string_view mode_;
  Tensor result_;
};

void check_updates(const Call& call, std::int64_t needed) {
  if (call.in(2).elements() != needed)
    call.refuse(cat("updates of shape ", text_of(call.in(2).shape), " where ", needed, " elements belong"));
}

void scatter(Call& call) {
  const Tensor data = call.in(0);
  const auto indices = call.numbers(1);
  const auto axis = static_cast<std::size_t>(call.axis(3, 0, data.rank()));
  const std::int64_t outer = product(data.shape, 0, axis), size = data.shape[axis],
                     inner = product(data.shape, axis + 1, data.shape.size());
  const auto each = static_cast<std::int64_t>(indices.size());
  check_updates(call, outer * each * inner);
  Target target(call, 4);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < each; ++i) {
      const std::int64_t index = checked_index(call, indices[static_cast<std::size_t>(i)], size);
      for (std::int64_t k = 0; k < inner; ++k)
        target.write((o * size + index) * inner + k, (o * each + i) * inner + k);
    }
  target.done();
}

void scatter_along_axis(Call& call) {
  const Tensor data = call.in(0);
  const auto indices = call.numbers(1);
  const auto axis = static_cast<std::size_t>(call.axis(3, 0, data.rank()));
  check_updates(call, call.in(1).elements());
  Target target(call, 4);
  along_axis(call, data.shape, call.in(1).shape, indices, axis,
             [&](std::int64_t i, std::int64_t at) { target.write(at, i); });
  target.done();
}

void scatter_nd(Call& call) {
  const Tensor data = call.in(0);
  const Shape by = call.in(1).shape;
  const auto indices = call.numbers(1);
  std::vector<std::int64_t> places;
  const std::int64_t inner = by_tuples(call, data.shape, by, indices, 0,
                                       [&](std::int64_t, std::int64_t at) { places.push_back(at); });
  check_updates(call, static_cast<std::int64_t>(places.size()) * inner);
  Target target(call, 3);
  for (std::size_t i = 0; i < places.size(); ++i)
    for (std::int64_t k = 0; k < inner; ++k)
      target.write(places[i] + k, static_cast<std::int64_t>(i) * inner + k);
  target.done();
}

}  // namespace
}  // namespace indexing

OperationRows gather_operations() {
  using namespace indexing;
  return {
      operation("gather", {"x#", "indices", "axis?", "batch_dims?", "validate_indices?"}, gather),
      operation("gather_along_axis", {"x", "indices", "axis?", "validate_indices?"}, gather_along_axis),
      operation("gather_nd", {"x", "indices", "batch_dims?", "validate_indices?"}, gather_nd),
      operation("scatter", {"data", "indices", "updates", "axis?", "mode?", "validate_indices?"}, scatter),
      operation("scatter_along_axis", {"data", "indices", "updates", "axis?", "mode?", "validate_indices?"},
                scatter_along_axis),
      operation("scatter_nd", {"data", "indices", "updates", "mode?", "validate_indices?"}, scatter_nd)};
}

}  // namespace kvtide::coreml
