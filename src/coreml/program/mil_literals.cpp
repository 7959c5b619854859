#include "coreml/program/mil_literals.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/half.h"
#include "base/text.h"
#include "coreml/program/constants.h"
#include "coreml/program/data_type.h"
#include "coreml/program/mil_types.h"

namespace kvtide::coreml {
namespace {

using Kind = ValueType::Kind;

// The spelling of a floating-point number. "nan", "inf", "0x1.8p-3", "1e-05".
template <class T>
bool parse_real(std::string_view text, T& value) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  if (text.empty() || text[0] == '-') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value,
                                            hex ? std::chars_format::hex : std::chars_format::general);
  if (end != text.data() + text.size()) return false;
  if (error != std::errc()) {
    // Too large or too small for T alone: infinity or zero, as arithmetic has it.
    double wide = 0.0;
    if (std::is_same_v<T, double> || hex ||
        std::from_chars(text.data(), text.data() + text.size(), wide).ec != std::errc())
      return false;
    value = static_cast<T>(wide);
  }
  if (negative) value = -value;
  return true;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const std::size_t begin = bytes.size();
  bytes.resize(begin + sizeof value);
  std::memcpy(bytes.data() + begin, &value, sizeof value);
}

// Appends elements of one type, those below a byte as one stream of bits.
class ElementReader {
 public:
  ElementReader(MilLexer& lexer, Value& value) : lexer_(lexer), value_(value), dtype_(value.type.dtype) {}

  void read() {
    Shape sizes;
    if (lexer_.is("[") && !value_.type.shape.empty())
      list(0, sizes);
    else
      element();
    for (std::size_t i = 0; i < value_.type.shape.size() && i < sizes.size(); ++i)
      if (value_.type.shape[i] == kUnknown) value_.type.shape[i] = sizes[i];
    if (dtype_ != DataType::string) own_bytes(value_, std::move(bytes_));
  }

 private:
  // Lists in lists as the shape says, or one flat list of all. `sizes`: of the first list of each level.
  void list(std::size_t level, Shape& sizes) {
    const Shape& shape = value_.type.shape;
    lexer_.expect("[");
    std::int64_t count = 0;
    const bool nested = lexer_.is("[");
    if (nested && level + 1 >= shape.size()) lexer_.fail("a constant has more lists in lists than its shape");
    if (sizes.size() == level) sizes.push_back(0);
    for (; !lexer_.is("]"); ++count) {
      if (count > 0) lexer_.expect(",");
      if (nested)
        list(level + 1, sizes);
      else
        element();
    }
    if (nested && shape[level] != kUnknown && count != shape[level])
      lexer_.fail(cat("a list of a constant has ", count, " parts; its shape says ", shape[level]));
    sizes[level] = count;
    lexer_.expect("]");
  }

  void element() {
    if (dtype_ == DataType::string) {
      value_.strings.push_back(lexer_.text("a text in quotes"));
    } else if (dtype_ == DataType::boolean) {
      const bool yes = lexer_.is_word("true");
      if (!yes && !lexer_.is_word("false")) lexer_.fail_expected("true or false");
      bytes_.push_back(std::byte{yes});
      lexer_.take();
    } else if (dtype_ == DataType::fp16 || dtype_ == DataType::bf16 || dtype_ == DataType::fp32) {
      real<float>();
    } else if (dtype_ == DataType::fp64) {
      real<double>();
    } else if (dtype_ == DataType::fp8e4m3fn || dtype_ == DataType::fp8e5m2) {
      lexer_.fail("numbers of 8-bit floats are read from weight files only", ErrorCode::unsupported);
    } else {
      whole();
    }
  }

  template <class T>
  void real() {
    T value{};
    const MilToken& token = lexer_.now();
    const bool number = token.kind == MilToken::Kind::number || token.kind == MilToken::Kind::name;
    if (!number || !parse_real(token.spelling, value)) lexer_.fail_expected("a number");
    lexer_.take();
    if (dtype_ == DataType::fp16)
      append(bytes_, f32_to_f16(static_cast<float>(value)));
    else if (dtype_ == DataType::bf16)
      append(bytes_, rounded_to_bf16(static_cast<float>(value)));
    else
      append(bytes_, value);
  }

  static std::uint16_t rounded_to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }

  void whole() {
    const int bits = bits_of(dtype_);
    const bool narrow = bits < 8;
    if (dtype_ == DataType::uint64) {
      std::uint64_t value = 0;
      const std::string_view digits = lexer_.now().spelling;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (lexer_.now().kind != MilToken::Kind::number || error != std::errc() ||
          end != digits.data() + digits.size())
        lexer_.fail_expected("a whole number that is not negative");
      lexer_.take();
      return append(bytes_, value);
    }
    const bool with_sign = dtype_ == DataType::int4 || name_of(dtype_).starts_with("int");
    const std::int64_t most = bits == 64 ? std::numeric_limits<std::int64_t>::max()
                                         : (std::int64_t{1} << (with_sign ? bits - 1 : bits)) - 1;
    const std::int64_t value = lexer_.whole("a whole number", with_sign ? -most - 1 : 0, most);
    if (!narrow) {
      append_whole(bytes_, dtype_, value);
      return;
    }
    for (int i = 0; i < bits; ++i, ++bits_) {
      if (bits_ % 8 == 0) bytes_.push_back(std::byte{0});
      if ((value >> i) & 1) bytes_.back() |= std::byte{1} << static_cast<int>(bits_ % 8);
    }
  }

  MilLexer& lexer_;
  Value& value_;
  const DataType dtype_;
  std::vector<std::byte> bytes_;
  std::size_t bits_ = 0;  // of elements below a byte
};

Value read_literal(MilLexer& lexer, const ValueType& type, int depth);

void read_parts(MilLexer& lexer, Value& value, int depth) {
  const bool tuple = value.type.kind == Kind::tuple;
  const bool round = lexer.is("(");
  lexer.expect(round ? "(" : "[");
  const std::string_view end = round ? ")" : "]";
  for (std::size_t i = 0; !lexer.is(end); ++i) {
    if (i > 0) lexer.expect(",");
    if (tuple && i >= value.type.parts.size()) lexer.fail("a tuple has more parts than its type");
    value.parts.push_back(read_literal(lexer, value.type.parts[tuple ? i : 0], depth + 1));
  }
  if (tuple && value.parts.size() != value.type.parts.size())
    lexer.fail("a tuple has fewer parts than its type");
  lexer.expect(end);
}

void read_dictionary(MilLexer& lexer, Value& value, int depth) {
  lexer.expect("{");
  while (!lexer.is("}")) {
    if (!value.dictionary.empty()) lexer.expect(",");
    lexer.expect("{");
    Value key = read_literal(lexer, value.type.parts[0], depth + 1);
    lexer.expect(",");
    Value held = read_literal(lexer, value.type.parts[1], depth + 1);
    lexer.expect("}");
    value.dictionary.emplace_back(std::move(key), std::move(held));
  }
  lexer.expect("}");
}

Value read_literal(MilLexer& lexer, const ValueType& type, int depth) {
  check_mil_depth(lexer, depth);
  Value value;
  value.type = type;
  if (type.kind == Kind::tensor)
    ElementReader(lexer, value).read();
  else if (type.kind == Kind::dictionary)
    read_dictionary(lexer, value, depth);
  else if (type.kind == Kind::state)
    lexer.fail("a state is no constant");
  else
    read_parts(lexer, value, depth);
  if (const std::string fault = fault_of(value); !fault.empty()) lexer.fail("a constant " + fault);
  return value;
}

// BLOBFILE(path = string("..."), offset = uint64(64))
void read_blob(MilLexer& lexer, Value& value, WeightFiles& weights) {
  lexer.expect("(");
  std::string path;
  std::int64_t offset = -1;
  for (bool first = true; !lexer.is(")"); first = false) {
    if (!first) lexer.expect(",");
    const std::string_view name = lexer.name("path or offset");
    lexer.expect("=");
    read_mil_type(lexer);
    lexer.expect("(");
    if (name == "path")
      path = lexer.text("a path in quotes");
    else if (name == "offset")
      offset = lexer.whole("an offset", 0, std::numeric_limits<std::int64_t>::max());
    else
      lexer.fail(cat("BLOBFILE takes path and offset, not ", quoted(name)));
    lexer.expect(")");
  }
  if (offset < 0) lexer.fail("BLOBFILE: offset is missing");
  try {
    weights.find(value, path, static_cast<std::uint64_t>(offset));
  } catch (const Error& error) {
    lexer.fail("BLOBFILE: " + error.message(), error.code());
  }
  lexer.expect(")");
}

}  // namespace

Value read_mil_value(MilLexer& lexer, WeightFiles& weights) {
  const ValueType type = read_mil_type(lexer);
  lexer.expect("(");
  Value value;
  if (lexer.is_word("BLOBFILE")) {
    lexer.take();
    value.type = type;
    read_blob(lexer, value, weights);
  } else {
    value = read_literal(lexer, type, 0);
  }
  lexer.expect(")");
  return value;
}

}  // namespace kvtide::coreml
