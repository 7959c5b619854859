#include "coreml/write/program_message.h"

#include <cstring>

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

// One of each kind, in the order of the message; the innermost field numbers stand where they are used.
void write_dimension(std::int64_t extent, MessageWriter& out, std::uint32_t field) {
  MessageWriter dimension, inner;
  if (extent != kUnknown) inner.integer(1, extent);
  dimension.message(extent == kUnknown ? 2 : 1, inner);
  out.message(field, dimension);
}

void write_type(const ValueType& type, MessageWriter& out);

void write_tensor_type(const ValueType& type, MessageWriter& out) {
  MessageWriter tensor;
  tensor.integer(1, static_cast<std::int64_t>(type.dtype));
  tensor.integer(2, type.any_rank ? -1 : static_cast<std::int64_t>(type.shape.size()));
  for (const std::int64_t extent : type.shape) write_dimension(extent, tensor, 3);
  out.message(1, tensor);
}

void write_type_part(const ValueType& type, MessageWriter& out, std::uint32_t field) {
  MessageWriter part;
  write_type(type, part);
  out.message(field, part);
}

void write_type(const ValueType& type, MessageWriter& out) {
  MessageWriter inner;
  switch (type.kind) {
    case ValueType::Kind::tensor:
      return write_tensor_type(type, out);
    case ValueType::Kind::state: {
      MessageWriter wrapped;
      write_tensor_type(type, wrapped);
      inner.message(1, wrapped);
      return out.message(5, inner);
    }
    case ValueType::Kind::list:
      for (const ValueType& part : type.parts) write_type_part(part, inner, 1);
      write_dimension(kUnknown, inner, 2);
      return out.message(2, inner);
    case ValueType::Kind::tuple:
      for (const ValueType& part : type.parts) write_type_part(part, inner, 1);
      return out.message(3, inner);
    case ValueType::Kind::dictionary:
      if (!type.parts.empty()) write_type_part(type.parts.front(), inner, 1);
      if (type.parts.size() > 1) write_type_part(type.parts[1], inner, 2);
      return out.message(4, inner);
  }
}

void write_named_type(const NamedType& named, MessageWriter& out, std::uint32_t field) {
  MessageWriter message;
  message.text(1, named.name);
  write_type_part(named.type, message, 2);
  out.message(field, message);
}

template <class T>
std::vector<std::int64_t> whole_numbers(std::span<const std::byte> bytes) {
  std::vector<std::int64_t> numbers(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof value);
    numbers[i] = static_cast<std::int64_t>(value);
  }
  return numbers;
}

// TensorValue: which field holds the numbers of a type.
void write_numbers(const Value& value, MessageWriter& out) {
  MessageWriter inner;
  std::uint32_t field = 7;  // bytes
  std::vector<std::int64_t> whole;
  switch (value.type.dtype) {
    case DataType::fp32:
      field = 1;
      break;
    case DataType::fp64:
      field = 6;
      break;
    case DataType::int32:
      whole = whole_numbers<std::int32_t>(value.bytes), field = 2;
      break;
    case DataType::int16:
      whole = whole_numbers<std::int16_t>(value.bytes), field = 2;
      break;
    case DataType::uint16:
      whole = whole_numbers<std::uint16_t>(value.bytes), field = 2;
      break;
    case DataType::boolean:
      whole = whole_numbers<std::uint8_t>(value.bytes), field = 3;
      break;
    case DataType::int64:
      whole = whole_numbers<std::int64_t>(value.bytes), field = 5;
      break;
    case DataType::uint64:
      whole = whole_numbers<std::uint64_t>(value.bytes), field = 5;
      break;
    case DataType::string:
      field = 4;
      break;
    default:
      break;
  }
  if (field == 4)
    for (const std::string& string : value.strings) inner.text(1, string);
  else if (!whole.empty())
    inner.packed_integers(1, std::span<const std::int64_t>(whole));
  else
    inner.bytes(1, value.bytes);
  out.message(field, inner);
}

void write_value(const Value& value, WeightPlace& weights, MessageWriter& out);

void write_value_part(const Value& value, WeightPlace& weights, MessageWriter& out, std::uint32_t field) {
  MessageWriter part;
  write_value(value, weights, part);
  out.message(field, part);
}

void write_immediate(const Value& value, WeightPlace& weights, MessageWriter& out) {
  MessageWriter inner;
  switch (value.type.kind) {
    case ValueType::Kind::tensor:
      write_numbers(value, inner);
      return out.message(1, inner);
    case ValueType::Kind::tuple:
    case ValueType::Kind::list:
      for (const Value& part : value.parts) write_value_part(part, weights, inner, 1);
      return out.message(value.type.kind == ValueType::Kind::tuple ? 2 : 3, inner);
    case ValueType::Kind::dictionary:
      for (const auto& [key, item] : value.dictionary) {
        MessageWriter pair;
        write_value_part(key, weights, pair, 1);
        write_value_part(item, weights, pair, 2);
        inner.message(1, pair);
      }
      return out.message(4, inner);
    case ValueType::Kind::state:
      throw Error(ErrorCode::unsupported, "a state is no constant");
  }
}

void write_value(const Value& value, WeightPlace& weights, MessageWriter& out) {
  write_type_part(value.type, out, 2);
  MessageWriter inner;
  if (goes_to_blob(value, weights.specification)) {
    inner.text(1, weights.file);
    inner.integer(2, static_cast<std::int64_t>(weights.blobs.add(value)));
    return out.message(5, inner);
  }
  write_immediate(value, weights, inner);
  out.message(3, inner);
}

void write_argument(const Argument& argument, WeightPlace& weights, MessageWriter& out) {
  MessageWriter list, entry;
  for (const Binding& binding : argument.bindings) {
    MessageWriter bound;
    if (binding.value)
      write_value_part(*binding.value, weights, bound, 2);
    else
      bound.text(1, binding.name);
    list.message(1, bound);
  }
  entry.text(1, argument.name);
  entry.message(2, list);
  out.message(2, entry);
}

void write_block(const Block& block, WeightPlace& weights, MessageWriter& out);

void write_operation(const Operation& operation, WeightPlace& weights, MessageWriter& out) {
  MessageWriter message;
  message.text(1, operation.type);
  for (const Argument& argument : operation.inputs) write_argument(argument, weights, message);
  for (const NamedType& output : operation.outputs) write_named_type(output, message, 3);
  for (const Block& block : operation.blocks) {
    MessageWriter inner;
    write_block(block, weights, inner);
    message.message(4, inner);
  }
  for (const Attribute& attribute : operation.attributes) {
    MessageWriter entry;
    entry.text(1, attribute.name);
    write_value_part(attribute.value, weights, entry, 2);
    message.message(5, entry);
  }
  out.message(3, message);
}

void write_block(const Block& block, WeightPlace& weights, MessageWriter& out) {
  for (const NamedType& input : block.inputs) write_named_type(input, out, 1);
  for (const std::string& output : block.outputs) out.text(2, output);
  for (const Operation& operation : block.operations) write_operation(operation, weights, out);
}

void write_function(const Function& function, WeightPlace& weights, MessageWriter& out) {
  MessageWriter message, block, specialization, entry;
  for (const NamedType& input : function.inputs) write_named_type(input, message, 1);
  message.text(2, function.opset);
  write_block(function.block, weights, block);
  specialization.text(1, function.opset);
  specialization.message(2, block);
  message.message(3, specialization);
  entry.text(1, function.name);
  entry.message(2, message);
  out.message(2, entry);
}

Value string_value(std::string_view text) {
  Value value;
  value.type.dtype = DataType::string;
  value.strings.emplace_back(text);
  return value;
}

}  // namespace

void write_program(const Program& program, WeightPlace& weights, MessageWriter& out) {
  out.integer(1, 1);
  for (const Function& function : program.functions) write_function(function, weights, out);
  if (program.build_info.empty()) return;
  Value info;
  info.type.kind = ValueType::Kind::dictionary;
  info.type.parts = {string_value("").type, string_value("").type};
  for (const auto& [key, value] : program.build_info)
    info.dictionary.emplace_back(string_value(key), string_value(value));
  MessageWriter entry;
  entry.text(1, "buildInfo");
  write_value_part(info, weights, entry, 2);
  out.message(4, entry);
}

}  // namespace kvtide::coreml
