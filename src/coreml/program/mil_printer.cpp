#include "coreml/program/mil_printer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/half.h"
#include "base/text.h"
#include "coreml/program/data_type.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

using Kind = ValueType::Kind;

std::string text_literal(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 32 || byte == 127) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string real_text(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[40];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, std::fabs(value), std::chars_format::hex).ptr;
  return cat(std::signbit(value) ? "-0x" : "0x",
             std::string_view(digits, static_cast<std::size_t>(end - digits)));
}

template <class T>
T element(const Value& value, std::size_t i) {
  T out;
  std::memcpy(&out, value.bytes.data() + i * sizeof(T), sizeof(T));
  return out;
}

// Below a byte: bits [i * width, (i + 1) * width) of the stream.
std::int64_t narrow_element(const Value& value, std::size_t i) {
  const auto width = static_cast<std::size_t>(bits_of(value.type.dtype));
  std::int64_t out = 0;
  for (std::size_t bit = 0; bit < width; ++bit) {
    const std::size_t at = i * width + bit;
    out |= ((static_cast<std::int64_t>(value.bytes[at / 8]) >> (at % 8)) & 1) << bit;
  }
  return value.type.dtype == DataType::int4 && out > 7 ? out - 16 : out;
}

std::string element_text(const Value& value, std::size_t i) {
  switch (value.type.dtype) {
    case DataType::string:
      return text_literal(value.strings[i]);
    case DataType::boolean:
      return element<std::uint8_t>(value, i) != 0 ? "true" : "false";
    case DataType::fp16:
      return real_text(f16_to_f32(element<std::uint16_t>(value, i)));
    case DataType::bf16:
      return real_text(bf16_to_f32(element<std::uint16_t>(value, i)));
    case DataType::fp32:
      return real_text(element<float>(value, i));
    case DataType::fp64:
      return real_text(element<double>(value, i));
    case DataType::int8:
      return cat(int{element<std::int8_t>(value, i)});
    case DataType::int16:
      return cat(element<std::int16_t>(value, i));
    case DataType::int32:
      return cat(element<std::int32_t>(value, i));
    case DataType::int64:
      return cat(element<std::int64_t>(value, i));
    case DataType::uint8:
      return cat(int{element<std::uint8_t>(value, i)});
    case DataType::uint16:
      return cat(element<std::uint16_t>(value, i));
    case DataType::uint32:
      return cat(element<std::uint32_t>(value, i));
    case DataType::uint64:
      return cat(element<std::uint64_t>(value, i));
    case DataType::fp8e4m3fn:
    case DataType::fp8e5m2:
    case DataType::none:
      throw Error(ErrorCode::unsupported,
                  cat("a constant of ", name_of(value.type.dtype), " has no MIL text"));
    default:
      return cat(narrow_element(value, i));
  }
}

// Lists in lists, as the shape has axes.
void add_elements(std::string& out, const Value& value, std::size_t axis, std::size_t& next) {
  const Shape& shape = value.type.shape;
  if (axis == shape.size()) {
    out += element_text(value, next++);
    return;
  }
  out += "[";
  for (std::int64_t i = 0; i < shape[axis]; ++i) {
    if (i > 0) out += ", ";
    add_elements(out, value, axis + 1, next);
  }
  out += "]";
}

void add_literal(std::string& out, const Value& value) {
  if (value.type.kind == Kind::tensor) {
    // However many lists of none its shape has.
    if (elements_of(value.type.shape) == 0) {
      out += "[]";
      return;
    }
    std::size_t next = 0;
    return add_elements(out, value, 0, next);
  }
  const bool dictionary = value.type.kind == Kind::dictionary, list = value.type.kind == Kind::list;
  out += dictionary ? "{" : list ? "[" : "(";
  std::string_view between;
  for (const Value& part : value.parts) {
    out += std::exchange(between, ", ");
    add_literal(out, part);
  }
  for (const auto& [key, held] : value.dictionary) {
    out += std::exchange(between, ", ");
    out += "{";
    add_literal(out, key);
    out += ", ";
    add_literal(out, held);
    out += "}";
  }
  out += dictionary ? "}" : list ? "]" : ")";
}

void add_value(std::string& out, const Value& value) {
  out += mil_type_text(value.type) + "(";
  if (value.from_blob)
    out += cat("BLOBFILE(path = string(", text_literal(value.blob_file), "), offset = uint64(",
               value.blob_offset, "))");
  else
    add_literal(out, value);
  out += ")";
}

class MilPrinter {
 public:
  void function(const Function& function, const std::string& about) {
    out += cat("    func ", function.name, "<", opset_text(function.opset), ">(");
    names(function.inputs);
    out += ")" + about + " {\n";
    body(function.block, 8);
    out += ";\n";
  }

  std::string out;
  std::vector<std::size_t> lines;  // that operations begin in, in the order of the text

 private:
  std::size_t line() {
    for (; counted_ < out.size(); ++counted_) line_ += out[counted_] == '\n' ? 1 : 0;
    return line_;
  }
  std::size_t counted_ = 0, line_ = 1;

  // Text says which system an opset came with.
  static std::string opset_text(const std::string& opset) {
    constexpr std::string_view kCoreml = "CoreML";
    int number = 0;
    if (opset.starts_with(kCoreml))
      std::from_chars(opset.data() + kCoreml.size(), opset.data() + opset.size(), number);
    return number >= 5 && number <= 8 ? cat("ios", number + 10) : opset;
  }

  void names(const std::vector<NamedType>& typed) {
    std::string_view between;
    for (const NamedType& each : typed)
      out += cat(std::exchange(between, ", "), mil_type_text(each.type), " ", each.name);
  }

  void binding(const Binding& binding) {
    if (binding.value)
      add_value(out, *binding.value);
    else
      out += binding.name;
  }

  void operation(const Operation& operation, std::size_t indent) {
    lines.push_back(line());
    out.append(indent, ' ');
    names(operation.outputs);
    out += cat(operation.outputs.empty() ? "" : " = ", operation.type, "(");
    std::string_view between;
    for (const Argument& argument : operation.inputs) {
      out +=
          cat(std::exchange(between, ", "), argument.name, " = ", argument.bindings.size() == 1 ? "" : "(");
      for (std::size_t i = 0; i < argument.bindings.size(); ++i) {
        if (i > 0) out += ", ";
        binding(argument.bindings[i]);
      }
      if (argument.bindings.size() != 1) out += ")";
    }
    out += ")";
    if (!operation.attributes.empty()) {
      out += "[";
      for (const Attribute& attribute : operation.attributes) {
        out += cat(&attribute == &operation.attributes.front() ? "" : ", ", attribute.name, " = ");
        add_value(out, attribute.value);
      }
      out += "]";
    }
    if (!operation.blocks.empty()) out += "(";
    for (const Block& block : operation.blocks) {
      if (&block != &operation.blocks.front()) out += ", ";
      if (!block.inputs.empty()) {
        out += "(";
        names(block.inputs);
        out += ") ";
      }
      out += "{\n";
      body(block, indent + 4);
    }
    out += operation.blocks.empty() ? ";\n" : ");\n";
  }

  void body(const Block& block, std::size_t indent) {
    for (const Operation& each : block.operations) operation(each, indent);
    out.append(indent - 4, ' ');
    out += "} -> (";
    std::string_view between;
    for (const std::string& name : block.outputs) out += cat(std::exchange(between, ", "), name);
    out += ")";
  }
};

std::string shape_list(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += cat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

// The shapes that inputs may have, as a function's attribute.
std::string shapes_text(const FunctionDescription& function) {
  std::string defaults, ranges, enumerated;
  std::size_t most = 0;
  const auto add = [](std::string& to, const std::string& text) { to += cat(to.empty() ? "" : ", ", text); };
  for (const Feature& input : function.inputs) {
    if (input.shapes.empty() && input.ranges.empty()) continue;
    add(defaults, cat("{", text_literal(input.name), ", ", shape_list(input.shape), "}"));
    most = std::max(most, input.shapes.size());
    std::string pairs;
    for (const auto& [least, last] : input.ranges) add(pairs, cat("[", least, ", ", last, "]"));
    if (!input.ranges.empty()) add(ranges, cat("{", text_literal(input.name), ", [", pairs, "]}"));
  }
  for (std::size_t i = 0; i < most; ++i) {
    std::string shapes;
    for (const Feature& input : function.inputs)
      if (i < input.shapes.size())
        add(shapes, cat("{", text_literal(input.name), ", ", shape_list(input.shapes[i]), "}"));
    add(enumerated, cat("{\"shapes_", i, "\", {", shapes, "}}"));
  }
  if (defaults.empty()) return "";
  std::string type = "tuple<string, dict<string, tensor<int32, [?]>>>",
              value = cat("(\"DefaultShapes\", {", defaults, "})");
  if (!ranges.empty()) {
    type += ", tuple<string, dict<string, list<tensor<int32, [2]>, ?>>>";
    value += cat(", (\"RangeDims\", {", ranges, "})");
  }
  if (!enumerated.empty()) {
    type += ", tuple<string, dict<string, dict<string, tensor<int32, [?]>>>>";
    value += cat(", (\"EnumeratedShapes\", {", enumerated, "})");
  }
  return cat(" [FlexibleShapeInformation = tuple<", type, ">((", value, "))]");
}

}  // namespace

std::string mil_type_text(const ValueType& type) {
  if (type.kind == Kind::tensor || type.kind == Kind::state) {
    std::string out = std::string(name_of(type.dtype));
    const bool state = type.kind == Kind::state;
    if (!type.shape.empty() || type.any_rank || state) {
      std::string sizes = type.any_rank ? "..." : "";
      for (const std::int64_t size : type.shape)
        sizes += cat(sizes.empty() ? "" : ", ", size == kUnknown ? "?" : cat(size));
      out = cat("tensor<", out, ", [", sizes, "]>");
    }
    return state ? cat("state<", out, ">") : out;
  }
  std::string parts;
  for (const ValueType& part : type.parts) parts += cat(parts.empty() ? "" : ", ", mil_type_text(part));
  return cat(type.kind == Kind::list    ? "list"
             : type.kind == Kind::tuple ? "tuple"
                                        : "dict",
             "<", parts, type.kind == Kind::list ? ", ?" : "", ">");
}

namespace {

MilPrinter printed(const Program& program, const Description* description) {
  MilPrinter printer;
  printer.out = "program(1.3)\n";
  std::string info;
  for (const auto& [key, value] : program.build_info)
    info += cat(info.empty() ? "" : ", ", "{", text_literal(key), ", ", text_literal(value), "}");
  if (!info.empty()) printer.out += cat("[buildInfo = dict<string, string>({", info, "})]\n");
  printer.out += "{\n";
  for (const Function& function : program.functions) {
    const FunctionDescription* about =
        description == nullptr ? nullptr : description->function(function.name);
    printer.function(function, about == nullptr ? "" : shapes_text(*about));
  }
  printer.out += "}\n";
  return printer;
}

void take_lines(Block& block, const std::size_t*& next) {
  for (Operation& operation : block.operations) {
    operation.line = *next++;
    for (Block& inner : operation.blocks) take_lines(inner, next);
  }
}

}  // namespace

std::string mil_text(const Program& program, const Description* description) {
  return std::move(printed(program, description).out);
}

void number_lines(Program& program, const Description* description) {
  if (program.source.ends_with(".mil")) return;
  MilPrinter printer;
  try {
    printer = printed(program, description);
  } catch (const Error&) {
    return;
  }
  const std::size_t* next = printer.lines.data();
  for (Function& function : program.functions) take_lines(function.block, next);
}

}  // namespace kvtide::coreml
