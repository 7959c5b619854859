#include "coreml/run/constants.h"

#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/run/convert.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

[[noreturn]] void bad_constant(const std::string& why) { throw Error(ErrorCode::bad_format, why); }

template <class From, class To>
Tensor converted_constant(const Value& value, DataType dtype, To (*convert)(From)) {
  Tensor result = zeroed_tensor(dtype, value.type.shape);
  for (std::int64_t i = 0; i < result.elements(); ++i) {
    From from;
    std::memcpy(&from, value.bytes.data() + static_cast<std::size_t>(i) * sizeof from, sizeof from);
    result.as<To>()[i] = convert(from);
  }
  return result;
}

template <class From>
std::int32_t fitting(From value) {
  if (value > static_cast<From>(std::numeric_limits<std::int32_t>::max()) ||
      (std::is_signed_v<From> && value < static_cast<From>(std::numeric_limits<std::int32_t>::min())))
    throw Error(ErrorCode::unsupported, cat("a constant of ", value, ", which no int32 can say"));
  return static_cast<std::int32_t>(value);
}

// Where the bytes lie, when an element of that type can lie there; else a copy.
Tensor constant_where_it_lies(const Value& value) {
  Tensor tensor{value.type.dtype, value.type.shape, nullptr};
  const std::size_t bytes = tensor.bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(value.bytes.data());
  if (value.keeps && bytes >= 4096 && address % element_bytes(tensor.dtype) == 0) {
    auto* data = const_cast<std::byte*>(
        value.bytes.data());  // constants are never written: nobody is their sole owner
    const std::shared_ptr<void> keeps = std::const_pointer_cast<void>(value.keeps);
    tensor.data = std::shared_ptr<std::byte>(keeps, data);
    return tensor;
  }
  tensor = zeroed_tensor(tensor.dtype, tensor.shape);
  if (bytes > 0) std::memcpy(tensor.data.get(), value.bytes.data(), bytes);
  return tensor;
}

Slot slot_of(Tensor tensor) {
  Slot slot;
  slot.tensor = std::move(tensor);
  slot.constant = true;
  return slot;
}

Slot slot_of(CompressedPtr compressed) {
  Slot slot;
  slot.tensor = {compressed->dtype(), compressed->shape(), nullptr};
  slot.compressed = std::move(compressed);
  slot.constant = true;
  return slot;
}

// The parameters of one constexpr operation: inputs, or attributes in the forms of iOS 16.
class Parameters {
 public:
  Parameters(const Operation& operation, const std::function<const Slot*(const std::string&)>& find,
             const Kernels& kernels)
      : operation_(operation), find_(find), kernels_(kernels) {}

  bool has(std::string_view name) const {
    return operation_.input(name) != nullptr || operation_.attribute(name) != nullptr;
  }
  Slot slot(std::string_view name) const {
    if (const Value* value = operation_.attribute(name)) return constant_slot(*value);
    const Argument* argument = operation_.input(name);
    if (argument == nullptr || argument->bindings.size() != 1) bad_constant(cat("no parameter '", name, "'"));
    const Binding& binding = argument->bindings[0];
    if (binding.value) return constant_slot(*binding.value);
    const Slot* found = find_(binding.name);
    if (found == nullptr)
      bad_constant(
          cat("parameter '", name, "' is bound to ", quoted(binding.name), ", which is no constant"));
    return *found;
  }
  CompressedPtr packed(std::string_view name) const { return packed_form(slot(name)); }
  Tensor dense(std::string_view name) const {
    Slot found = slot(name);
    make_dense(found, kernels_);
    return found.tensor;
  }
  std::int64_t whole(std::string_view name, std::int64_t otherwise) const {
    if (!has(name)) return otherwise;
    std::int32_t value = 0;
    const Tensor tensor = dense(name);
    if (tensor.elements() != 1) bad_constant(cat("parameter '", name, "' is no single number"));
    coreml::load(kernels_, tensor, 0, 1, &value);
    return value;
  }
  Shape shape(std::string_view name) const {
    const Tensor tensor = dense(name);
    std::vector<std::int32_t> sizes(static_cast<std::size_t>(tensor.elements()));
    coreml::load(kernels_, tensor, 0, tensor.elements(), sizes.data());
    Shape result(sizes.begin(), sizes.end());
    if (!elements_of(result)) bad_constant(cat("parameter '", name, "' is no shape"));
    return result;
  }

 private:
  const Operation& operation_;
  const std::function<const Slot*(const std::string&)>& find_;
  const Kernels& kernels_;
};

std::int64_t counted_from_front(std::int64_t axis, const Shape& shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (axis < -rank || axis >= rank) bad_constant(cat("axis ", axis, " of ", text_of(shape)));
  return axis < 0 ? axis + rank : axis;
}

// Packed bytes as numbers of so many bits, of a shape of their own.
CompressedPtr bits_in_bytes(const Tensor& bytes, DataType stored, Shape shape) {
  Value value;
  value.type.dtype = stored;
  value.type.shape = shape;
  value.bytes = {bytes.data.get(), bytes.bytes()};
  value.keeps = bytes.data;
  return stored_numbers(value, DataType::uint8, std::move(shape));
}

CompressedPtr affine(const Parameters& p, const Kernels& kernels) {
  const CompressedPtr data = p.packed("quantized_data");
  Tensor scale = p.dense("scale");
  const Tensor offset = p.dense("zero_point");
  Shape grid(data->shape().size(), 1);
  const auto axis = static_cast<std::size_t>(counted_from_front(p.whole("axis", 0), data->shape()));
  const std::int64_t groups = std::max(scale.elements(), offset.elements());
  if (groups > 1) grid[axis] = groups;
  const auto everywhere = [&](const Tensor& factors) {  // one number stands for all groups
    if (factors.elements() == groups) return factors.reshaped(grid);
    if (factors.elements() != 1) bad_constant("scale and zero_point of different lengths");
    Tensor all = zeroed_tensor(factors.dtype, grid);
    for (std::int64_t i = 0; i < groups; ++i)
      std::memcpy(all.data.get() + static_cast<std::size_t>(i) * element_bytes(all.dtype), factors.data.get(),
                  element_bytes(all.dtype));
    return all;
  };
  return scaled_blocks(data, everywhere(scale), stored_numbers(everywhere(offset)), kernels);
}

CompressedPtr old_palette(const Parameters& p, const Kernels& kernels) {
  Tensor table = p.dense("lut");
  const Shape shape = p.shape("shape");
  DataType stored = DataType::none;
  for (const DataType type :
       {DataType::uint1, DataType::uint2, DataType::uint3, DataType::uint4, DataType::uint6, DataType::uint8})
    if (table.elements() == std::int64_t{1} << bits_of(type)) stored = type;
  if (stored == DataType::none || shape.empty())
    bad_constant(cat("a table of ", table.elements(), " entries"));
  Shape grid(shape.size(), 1);
  grid.insert(grid.end(), {table.elements(), 1});
  return palette(bits_in_bytes(p.dense("indices"), stored, shape), table.reshaped(grid), 0, kernels);
}

CompressedPtr scaled(const Parameters& p, const CompressedPtr& data, const Kernels& kernels) {
  return scaled_blocks(data, p.dense("scale"), p.has("offset") ? p.packed("offset") : nullptr, kernels);
}

CompressedPtr looked_up(const Parameters& p, const CompressedPtr& indices, const Kernels& kernels) {
  return palette(indices, p.dense("lut"), counted_from_front(p.whole("vector_axis", 0), indices->shape()),
                 kernels);
}

// Values of a sparse constant before they are spread: all elements, dense, and the mask that says which count.
std::vector<Slot> sparse_slots(const CompressedPtr& mask, CompressedPtr values, const std::string& why) {
  if (values->shape() != mask->shape()) throw Error(ErrorCode::unsupported, why);
  return {slot_of(mask), slot_of(std::move(values))};
}

}  // namespace

Slot constant_slot(const Value& value) {
  Slot slot;
  slot.constant = true;
  const ValueType& type = value.type;
  if (type.dtype == DataType::string || !value.strings.empty()) {
    slot.text = value.strings.empty() ? "" : value.strings[0];
    return slot;
  }
  if (type.kind != ValueType::Kind::tensor || type.any_rank) bad_constant("a constant that is no tensor");
  const auto elements = elements_of(type.shape);
  if (!elements) bad_constant(cat("a constant of shape ", text_of(type.shape)));
  const std::size_t needed = bytes_for(type.dtype, *elements);
  if (value.bytes.size() < needed)
    bad_constant(cat("a constant of ", value.bytes.size(), " bytes where ", text_of(type.shape), " of ",
                     name_of(type.dtype), " are ", needed));
  if (runs(type.dtype)) {
    slot = slot_of(constant_where_it_lies(value));
    slot.of_package = slot.tensor.data.get() == value.bytes.data();
    if (slot.of_package) slot.file = value.file;
    return slot;
  }
  switch (type.dtype) {
    case DataType::int64:
      return slot_of(
          converted_constant<std::int64_t, std::int32_t>(value, DataType::int32, &fitting<std::int64_t>));
    case DataType::uint64:
      return slot_of(
          converted_constant<std::uint64_t, std::int32_t>(value, DataType::int32, &fitting<std::uint64_t>));
    case DataType::uint32:
      return slot_of(
          converted_constant<std::uint32_t, std::int32_t>(value, DataType::int32, &fitting<std::uint32_t>));
    case DataType::fp64:
      return slot_of(converted_constant<double, float>(value, DataType::fp32,
                                                       [](double x) { return static_cast<float>(x); }));
    case DataType::bf16:
      return slot_of(converted_constant<std::uint16_t, float>(value, DataType::fp32, &bf16_to_f32));
    default:
      return slot_of(stored_numbers(value, type.dtype, type.shape));
  }
}

bool is_constexpr(std::string_view type) { return type.substr(0, 10) == "constexpr_"; }

std::vector<Slot> constexpr_slots(const Operation& operation,
                                  const std::function<const Slot*(const std::string&)>& find,
                                  const Kernels& kernels) {
  const Parameters p(operation, find, kernels);
  const std::string_view type = operation.type;
  if (type == "constexpr_blockwise_shift_scale") return {slot_of(scaled(p, p.packed("data"), kernels))};
  if (type == "constexpr_affine_dequantize") return {slot_of(affine(p, kernels))};
  if (type == "constexpr_lut_to_dense")
    return {slot_of(p.has("shape") ? old_palette(p, kernels) : looked_up(p, p.packed("indices"), kernels))};
  if (type == "constexpr_sparse_to_dense") {
    const CompressedPtr values = p.packed("nonzero_data");
    const CompressedPtr mask =
        p.has("shape") ? bits_in_bytes(p.dense("mask"), DataType::uint1, p.shape("shape")) : p.packed("mask");
    // What a sparse look-up or scale gives has every element in its place already.
    if (values->shape() == mask->shape() && mask->shape().size() > 1) return {slot_of(masked(values, mask))};
    return {slot_of(spread_over(values, mask, kernels))};
  }
  if (type == "constexpr_lut_to_sparse") {
    const CompressedPtr mask = p.packed("indices_mask");
    return sparse_slots(mask,
                        looked_up(p, spread_over(p.packed("indices_nonzero_data"), mask, kernels), kernels),
                        "sparse constants of vectors are not decoded");
  }
  if (type == "constexpr_sparse_blockwise_shift_scale") {
    const CompressedPtr mask = p.packed("data_mask");
    CompressedPtr values = p.packed("nonzero_data");
    if (values->shape() != mask->shape() || mask->shape().size() == 1)
      values = spread_over(values, mask, kernels);
    return sparse_slots(mask, scaled(p, values, kernels), "a sparse constant of another shape than its mask");
  }
  if (type == "constexpr_cast") {
    const Tensor source = p.dense("source_val");
    Tensor result = zeroed_tensor(operation.outputs.at(0).type.dtype, source.shape);
    if (!is_float(source.dtype) || !is_float(result.dtype))
      throw Error(ErrorCode::unsupported, "constexpr_cast of other than floats");
    std::vector<float> values(static_cast<std::size_t>(source.elements()));
    load(kernels, source, 0, source.elements(), values.data());
    store(kernels, values.data(), source.elements(), result, 0);
    return {slot_of(std::move(result))};
  }
  throw Error(ErrorCode::unsupported, cat("operation ", quoted(type)));
}

CompressedPtr packed_form(const Slot& slot) {
  return slot.compressed ? slot.compressed : stored_numbers(slot.tensor);
}

void make_dense(Slot& slot, const Kernels& kernels) {
  if (!slot.compressed) return;
  slot.tensor = dense_tensor(kernels, *slot.compressed);
  slot.compressed = nullptr;
}

}  // namespace kvtide::coreml
