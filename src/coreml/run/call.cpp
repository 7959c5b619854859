#include "coreml/run/call.h"

#include "base/checked.h"
#include "base/text.h"
#include "coreml/run/convert.h"
#include "kvtide/error.h"

namespace kvtide::coreml {

std::vector<std::int64_t> Call::numbers(std::size_t parameter) const {
  if (!has(parameter)) return {};
  const Tensor& tensor = in(parameter);
  std::vector<std::int32_t> values(static_cast<std::size_t>(tensor.elements()));
  load(run.kernels, tensor, 0, tensor.elements(), values.data());
  return {values.begin(), values.end()};
}

std::int64_t Call::number(std::size_t parameter) const {
  const Tensor& tensor = in(parameter);
  if (tensor.elements() != 1)
    refuse(cat(step.row->parameters[parameter].name, " has shape ", text_of(tensor.shape),
               " where one number belongs"));
  std::int32_t value = 0;
  load(run.kernels, tensor, 0, 1, &value);
  return value;
}

std::int64_t Call::number(std::size_t parameter, std::int64_t otherwise) const {
  return has(parameter) ? number(parameter) : otherwise;
}

float Call::real(std::size_t parameter) const {
  const Tensor& tensor = in(parameter);
  if (tensor.elements() != 1)
    refuse(cat(step.row->parameters[parameter].name, " has shape ", text_of(tensor.shape),
               " where one number belongs"));
  float value = 0;
  load(run.kernels, tensor, 0, 1, &value);
  return value;
}

float Call::real(std::size_t parameter, float otherwise) const {
  return has(parameter) ? real(parameter) : otherwise;
}

bool Call::flag(std::size_t parameter, bool otherwise) const {
  return has(parameter) ? number(parameter) != 0 : otherwise;
}

std::string_view Call::text(std::size_t parameter, std::string_view otherwise) const {
  return has(parameter) ? std::string_view(slot(parameter).text) : otherwise;
}

namespace {

std::int64_t counted_axis(const Call& call, std::int64_t axis, std::int64_t rank) {
  const std::int64_t counted = axis < 0 ? axis + rank : axis;
  if (counted < 0 || counted >= rank) call.refuse(cat("axis ", axis, " of a tensor with ", rank, " axes"));
  return counted;
}

}  // namespace

std::int64_t Call::axis(std::size_t parameter, std::int64_t otherwise, std::int64_t rank) const {
  return counted_axis(*this, number(parameter, otherwise), rank);
}

std::vector<std::int64_t> Call::axes(std::size_t parameter, std::int64_t rank) const {
  std::vector<std::int64_t> result;
  if (!has(parameter)) {
    for (std::int64_t axis = 0; axis < rank; ++axis) result.push_back(axis);
    return result;
  }
  for (const std::int64_t axis : numbers(parameter)) result.push_back(counted_axis(*this, axis, rank));
  return result;
}

void Call::check_shape(const Shape& shape) const {
  std::uint64_t bytes = 4;
  for (const std::int64_t size : shape) {
    if (size < 0) refuse(cat("a result of shape ", text_of(shape)));
    const auto product = checked_mul(bytes, static_cast<std::uint64_t>(size));
    if (!product || *product > std::uint64_t{1} << 42)
      refuse(cat("a result of shape ", text_of(shape), " is too large"));
    bytes = *product;
  }
}

const Tensor& Call::make(Shape shape, std::size_t result) const {
  check_shape(shape);
  return out(result) = run.tensors.take(step.outputs[result].dtype, std::move(shape));
}

void Call::give(const Tensor& tensor, std::size_t result) const {
  const DataType wanted = step.outputs[result].dtype;
  if (wanted == tensor.dtype) {
    out(result) = tensor;
    return;
  }
  const Tensor source = tensor;  // `make` may replace what it lies in
  const Tensor& to = make(source.shape, result);
  in_pieces(run, source.elements(), 32768, [&](std::int64_t first, std::int64_t last) {
    if (is_float(source.dtype)) {
      float piece[1024];
      for (std::int64_t at = first; at < last; at += 1024) {
        const std::int64_t n = std::min<std::int64_t>(1024, last - at);
        load(run.kernels, source, at, n, piece);
        store(run.kernels, piece, n, to, at);
      }
    } else {
      std::int32_t piece[1024];
      for (std::int64_t at = first; at < last; at += 1024) {
        const std::int64_t n = std::min<std::int64_t>(1024, last - at);
        load(run.kernels, source, at, n, piece);
        store(run.kernels, piece, n, to, at);
      }
    }
  });
}

void Call::refuse(const std::string& why) const {
  throw Error(ErrorCode::invalid_argument, cat(step.where, ": ", why));
}

OperationRow operation(std::string_view type, std::initializer_list<std::string_view> parameters,
                       void (*run)(Call& call)) {
  OperationRow row{type, {}, run};
  for (std::string_view name : parameters) {
    Parameter parameter;
    for (; !name.empty(); name.remove_suffix(1)) {
      if (name.back() == '?')
        parameter.need = Parameter::Need::optional;
      else if (name.back() == '*')
        parameter.need = Parameter::Need::many;
      else if (name.back() == '#')
        parameter.packed = true;
      else
        break;
    }
    parameter.name = name;
    row.parameters.push_back(parameter);
  }
  return row;
}

}  // namespace kvtide::coreml
