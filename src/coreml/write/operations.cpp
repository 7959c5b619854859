#include "coreml/write/operations.h"

#include <algorithm>

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

std::string shape_as_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += cat(i == 0 ? "" : ", ", shape[i] == kUnknown ? std::string("?") : std::to_string(shape[i]));
  return text + "]";
}

std::size_t axis_of(int axis, std::size_t rank) {
  return static_cast<std::size_t>(axis < 0 ? axis + static_cast<int>(rank) : axis);
}

bool is_comparison(std::string_view type) {
  for (const char* known : {"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})
    if (type == known) return true;
  return false;
}

}  // namespace

Shape Operations::broadcast(const Shape& x, const Shape& y, std::string_view what) const {
  Shape out(std::max(x.size(), y.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t a = i < x.size() ? x[x.size() - 1 - i] : 1, b = i < y.size() ? y[y.size() - 1 - i] : 1;
    std::int64_t& extent = out[out.size() - 1 - i];
    if (a == 1 || (a == kUnknown && b > 1))
      extent = b;
    else if (b == 1 || b == kUnknown || a == b)
      extent = a;
    else
      throw Error(ErrorCode::invalid_argument,
                  cat(what, " of ", shape_as_text(x), " and ", shape_as_text(y), ": the shapes do not fit"));
  }
  return out;
}

std::string Operations::unary(std::string_view op, const Name& x) { return f_.op(op, {{"x", x}}, type(x)); }

std::string Operations::binary(std::string_view op, const Name& x, const Given& y) {
  const Binding& other = y.bindings().front();
  const Shape& shape = other.value ? other.value->type.shape : type(other.name).shape;
  ValueType result = like(x, broadcast(type(x).shape, shape, op));
  if (is_comparison(op)) result.dtype = DataType::boolean;
  return f_.op(op, {{"x", x}, {"y", y}}, std::move(result));
}

std::string Operations::cast(const Name& x, DataType to) {
  return f_.op("cast", {{"x", x}, {"dtype", text(name_of(to))}}, tensor(to, type(x).shape));
}

std::string Operations::linear(const Name& x, const Name& weight, const Name& bias) {
  Shape shape = type(x).shape;
  const Shape& matrix = type(weight).shape;
  if (matrix.size() != 2 || shape.empty() || shape.back() != matrix[1])
    throw Error(ErrorCode::invalid_argument, cat("linear of ", shape_as_text(shape), " and ",
                                                 shape_as_text(matrix), ": the shapes do not fit"));
  shape.back() = matrix[0];
  GivenList inputs = {{"x", x}, {"weight", weight}};
  if (!bias.empty()) inputs.push_back({"bias", bias});
  return f_.op("linear", std::move(inputs), like(x, std::move(shape)));
}

std::string Operations::matmul(const Name& x, const Name& y, bool transpose_x, bool transpose_y) {
  Shape a = type(x).shape, b = type(y).shape;
  if (transpose_x) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (transpose_y) std::swap(b[b.size() - 1], b[b.size() - 2]);
  const std::int64_t rows = a[a.size() - 2], columns = b.back(), inner = a.back(), other = b[b.size() - 2];
  if (inner != other && inner != kUnknown && other != kUnknown)
    throw Error(ErrorCode::invalid_argument,
                cat("matmul of ", shape_as_text(a), " and ", shape_as_text(b), ": the shapes do not fit"));
  a.resize(a.size() - 2);
  b.resize(b.size() - 2);
  Shape shape = broadcast(a, b, "matmul");
  shape.insert(shape.end(), {rows, columns});
  return f_.op("matmul", {{"x", x}, {"y", y}, {"transpose_x", transpose_x}, {"transpose_y", transpose_y}},
               like(x, std::move(shape)));
}

std::string Operations::softmax(const Name& x) { return f_.op("softmax", {{"x", x}, {"axis", -1}}, type(x)); }

std::string Operations::layer_norm(const Name& x, const Name& gamma, const Name& beta, float epsilon) {
  GivenList inputs = {{"x", x}, {"axes", {-1}}, {"gamma", gamma}};
  if (!beta.empty()) inputs.push_back({"beta", beta});
  inputs.push_back({"epsilon", half(epsilon)});
  return f_.op("layer_norm", std::move(inputs), type(x));
}

// In f32: squares of f16 overflow at 256.
std::string Operations::rms_norm(const Name& x, const Name& gamma, float epsilon) {
  const Name wide = cast(x, DataType::fp32);
  const Name squares = unary("square", wide);
  Shape reduced = type(x).shape;
  reduced.back() = 1;
  const Name mean = f_.op("reduce_mean", {{"x", squares}, {"axes", {-1}}, {"keep_dims", true}},
                          tensor(DataType::fp32, std::move(reduced)));
  const Name scale = f_.op("rsqrt", {{"x", mean}, {"epsilon", number(epsilon)}}, type(mean));
  return mul(cast(mul(wide, scale), DataType::fp16), gamma);
}

std::string Operations::gelu(const Name& x) {
  return f_.op("gelu", {{"x", x}, {"mode", text("TANH_APPROXIMATION")}}, type(x));
}

std::string Operations::reshape(const Name& x, const std::vector<int>& shape) {
  Shape result(shape.begin(), shape.end());
  std::int64_t known = 1;
  for (const std::int64_t extent : result)
    if (extent > 0) known *= extent;
  const auto elements = elements_of(type(x).shape);
  for (std::int64_t& extent : result)
    if (extent == -1) extent = elements ? static_cast<std::int64_t>(*elements) / known : kUnknown;
  return f_.op("reshape", {{"x", x}, {"shape", ints(std::vector<std::int32_t>(shape.begin(), shape.end()))}},
               like(x, std::move(result)));
}

std::string Operations::transpose(const Name& x, const std::vector<int>& perm) {
  Shape shape;
  for (const int axis : perm) shape.push_back(type(x).shape[axis_of(axis, perm.size())]);
  return f_.op("transpose", {{"x", x}, {"perm", ints(std::vector<std::int32_t>(perm.begin(), perm.end()))}},
               like(x, std::move(shape)));
}

std::string Operations::expand(const Name& x, int axis) {
  Shape shape = type(x).shape;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis_of(axis, shape.size() + 1)), 1);
  return f_.op("expand_dims", {{"x", x}, {"axes", {axis}}}, like(x, std::move(shape)));
}

std::string Operations::tile(const Name& x, const std::vector<int>& reps) {
  Shape shape = type(x).shape;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != kUnknown) shape[i] *= reps[i];
  return f_.op("tile", {{"x", x}, {"reps", ints(std::vector<std::int32_t>(reps.begin(), reps.end()))}},
               like(x, std::move(shape)));
}

std::string Operations::concat(const std::vector<Name>& parts, int axis) {
  Shape shape = type(parts.front()).shape;
  std::int64_t& along = shape[axis_of(axis, shape.size())];
  along = 0;
  for (const Name& part : parts) {
    const std::int64_t extent = type(part).shape[axis_of(axis, shape.size())];
    along = along == kUnknown || extent == kUnknown ? kUnknown : along + extent;
  }
  return f_.op("concat", {{"values", Given::tuple(parts)}, {"axis", axis}, {"interleave", false}},
               like(parts.front(), std::move(shape)));
}

std::vector<std::string> Operations::split(const Name& x, int parts, int axis) {
  Shape shape = type(x).shape;
  shape[axis_of(axis, shape.size())] /= parts;
  return f_.op_many("split", {{"x", x}, {"num_splits", parts}, {"axis", axis}},
                    std::vector<ValueType>(static_cast<std::size_t>(parts), like(x, shape)));
}

std::string Operations::gather(const Name& x, const Name& indices, int axis) {
  const Shape& from = type(x).shape;
  const std::size_t at = axis_of(axis, from.size());
  Shape shape(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(at));
  shape.insert(shape.end(), type(indices).shape.begin(), type(indices).shape.end());
  shape.insert(shape.end(), from.begin() + static_cast<std::ptrdiff_t>(at) + 1, from.end());
  return f_.op(
      "gather",
      {{"x", x}, {"indices", indices}, {"axis", axis}, {"batch_dims", 0}, {"validate_indices", false}},
      like(x, std::move(shape)));
}

namespace {

void add_masks(const SliceBounds& bounds, GivenList& inputs) {
  if (!bounds.begin_mask.empty()) inputs.push_back({"begin_mask", flags(bounds.begin_mask)});
  if (!bounds.end_mask.empty()) inputs.push_back({"end_mask", flags(bounds.end_mask)});
  if (!bounds.squeeze.empty()) inputs.push_back({"squeeze_mask", flags(bounds.squeeze)});
}

}  // namespace

std::string Operations::slice(const Name& x, const SliceBounds& bounds, Shape result) {
  GivenList inputs = {{"x", x}, {"begin", bounds.begin}, {"end", bounds.end}};
  add_masks(bounds, inputs);
  return f_.op("slice_by_index", std::move(inputs), like(x, std::move(result)));
}

std::string Operations::part(const Name& x, std::size_t axis, int first, int last) {
  Shape shape = type(x).shape;
  const std::int64_t whole = shape[axis];
  shape[axis] = first < 0           ? -first
                : last > 0          ? last - first
                : whole == kUnknown ? kUnknown
                                    : whole - first + last;
  std::vector<std::int32_t> begin(shape.size(), 0), end(shape.size(), 0);
  begin[axis] = first, end[axis] = last;
  SliceBounds bounds{ints(begin), ints(end)};
  bounds.begin_mask.assign(shape.size(), true);
  bounds.end_mask.assign(shape.size(), true);
  bounds.begin_mask[axis] = false;
  bounds.end_mask[axis] = last == 0;
  return slice(x, bounds, std::move(shape));
}

std::string Operations::slice_update(const Name& x, const Name& update, const SliceBounds& bounds) {
  GivenList inputs = {{"x", x}, {"update", update}, {"begin", bounds.begin}, {"end", bounds.end}};
  add_masks(bounds, inputs);
  return f_.op("slice_update", std::move(inputs), type(x));
}

std::string Operations::extent(const Name& x, int axis) {
  const auto rank = static_cast<std::int64_t>(type(x).shape.size());
  const Name shape = f_.op("shape", {{"x", x}}, tensor(DataType::int32, {rank}));
  return f_.op("gather",
               {{"x", shape},
                {"indices", static_cast<int>(axis_of(axis, static_cast<std::size_t>(rank)))},
                {"axis", 0},
                {"batch_dims", 0},
                {"validate_indices", false}},
               scalar(DataType::int32));
}

std::string Operations::vector(const std::vector<Given>& numbers) {
  std::vector<Name> names;
  for (const Given& given : numbers) {
    const Binding& binding = given.bindings().front();
    Name name = binding.value ? f_.constant("number", *binding.value) : binding.name;
    if (type(name).shape.empty()) name = f_.op("expand_dims", {{"x", name}, {"axes", {0}}}, like(name, {1}));
    names.push_back(name);
  }
  return f_.op("concat", {{"values", Given::tuple(names)}, {"axis", 0}, {"interleave", false}},
               tensor(DataType::int32, {static_cast<std::int64_t>(names.size())}));
}

}  // namespace kvtide::coreml
