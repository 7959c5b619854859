#include "coreml/program/wire_values.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/text.h"
#include "coreml/program/constants.h"
#include "coreml/program/data_type.h"

namespace kvtide::coreml {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

DataType read_data_type(const WireMessage& message) {
  const auto type = static_cast<DataType>(message.integer("dataType", 0, 255));
  if (bits_of(type) == 0 && type != DataType::string)
    message.fail_at("dataType", cat(static_cast<int>(type), " is no type of an element"));
  return type;
}

// Of a Dimension; `variadic`: stands for any number of dimensions.
std::int64_t read_dimension(WireMessage message, bool& variadic) {
  std::optional<std::int64_t> size;
  while (message.next()) {
    if (message.field() == 1) {
      size = 0;
      for (WireMessage constant = message.message("constant"); constant.next();)
        if (constant.field() == 1) size = constant.integer("size", 0, kLargest);
    } else if (message.field() == 2) {
      size = kUnknown;
      for (WireMessage unknown = message.message("unknown"); unknown.next();)
        if (unknown.field() == 1) variadic = variadic || unknown.flag("variadic");
    }
  }
  if (!size) message.fail("is neither constant nor unknown");
  return *size;
}

void read_tensor_type(WireMessage message, ValueType& type) {
  std::int64_t rank = 0;
  bool variadic = false;
  while (message.next()) {
    if (message.field() == 1) type.dtype = read_data_type(message);
    if (message.field() == 2) rank = message.integer("rank", -1, kMostRank);
    if (message.field() == 3) {
      const auto number = static_cast<std::int64_t>(type.shape.size());
      type.shape.push_back(read_dimension(message.message("dimensions", number), variadic));
    }
  }
  if (type.dtype == DataType::none) message.fail_at("dataType", "is missing");
  type.any_rank = rank < 0 || variadic;
  if (!type.any_rank && rank != static_cast<std::int64_t>(type.shape.size()))
    message.fail_at("rank", cat("is ", rank, "; there are ", type.shape.size(), " dimensions"));
  if (type.any_rank) type.shape.clear();
}

void read_state_type(WireMessage message, ValueType& type) {
  bool found = false;
  while (message.next()) {
    if (message.field() != 1) continue;
    WireMessage wrapped = message.message("wrappedType");
    type = read_type(wrapped);
    const auto elements = elements_of(type.shape);
    if (type.kind != ValueType::Kind::tensor || type.any_rank || !elements)
      wrapped.fail("is no tensor of a known shape; a state must be one");
    if (*elements > kMostStateElements)
      wrapped.fail(cat("has ", *elements, " elements; a state has 2^40 at most"));
    found = true;
  }
  if (!found) message.fail_at("wrappedType", "is missing");
  type.kind = ValueType::Kind::state;
}

using Kind = ValueType::Kind;

// Of lists, tuples and dictionaries.
void read_parts(WireMessage message, ValueType& type) {
  std::int64_t number = 0;
  std::optional<ValueType> key, held;
  while (message.next()) {
    if (type.kind == Kind::tuple && message.field() == 1)
      type.parts.push_back(read_type(message.message("types", number++)));
    if (type.kind == Kind::list && message.field() == 1)
      type.parts.push_back(read_type(message.message("type")));
    if (type.kind == Kind::dictionary && message.field() == 1) key = read_type(message.message("keyType"));
    if (type.kind == Kind::dictionary && message.field() == 2) held = read_type(message.message("valueType"));
  }
  if (key && held) type.parts = {std::move(*key), std::move(*held)};
  const std::size_t needed = type.kind == Kind::list         ? 1
                             : type.kind == Kind::dictionary ? 2
                                                             : type.parts.size();
  if (type.parts.size() != needed)
    message.fail(cat("names ", type.parts.size(), " types; it needs ", needed));
}

// The bytes or strings of a TensorValue.
class TensorReader {
 public:
  TensorReader(const WireMessage& message, Value& value)
      : message_(message), value_(value), dtype_(value.type.dtype) {}

  void read() {
    while (message_.next()) {
      switch (message_.field()) {
        case 1:
          fixed("floats", DataType::fp32, 4);
          break;
        case 2:
          whole("ints");
          break;
        case 3:
          expect("bools", dtype_ == DataType::boolean);
          whole("bools");
          break;
        case 4:
          texts();
          break;
        case 5:
          whole("longInts");
          break;
        case 6:
          fixed("doubles", DataType::fp64, 8);
          break;
        case 7:
          raw();
          break;
        default:
          break;
      }
    }
    if (dtype_ != DataType::string) own_bytes(value_, std::move(bytes_));
  }

 private:
  void expect(std::string_view field, bool fits) const {
    if (!fits) message_.fail_at(field, cat("cannot hold elements of ", name_of(dtype_)));
  }

  void fixed(std::string_view field, DataType held, std::size_t width) {
    for (WireMessage part = message_.message(field); part.next();) {
      if (part.field() != 1) continue;
      expect(field, dtype_ == held);
      const auto numbers = part.fixed("values", width);
      bytes_.insert(bytes_.end(), numbers.begin(), numbers.end());
    }
  }

  void whole(std::string_view field) {
    for (WireMessage part = message_.message(field); part.next();)
      if (part.field() == 1)
        part.integers("values", [&](std::int64_t number) {
          if (!append_whole(bytes_, dtype_, number))
            part.fail_at("values", cat(number, " is no element of ", name_of(dtype_)));
        });
  }

  void texts() {
    std::int64_t number = 0;
    for (WireMessage part = message_.message("strings"); part.next();) {
      if (part.field() != 1) continue;
      expect("strings", dtype_ == DataType::string);
      value_.strings.push_back(part.text("values", number++));
    }
  }

  void raw() {
    for (WireMessage part = message_.message("bytes"); part.next();) {
      if (part.field() != 1) continue;
      expect("bytes", dtype_ != DataType::string && dtype_ != DataType::boolean);
      const auto all = part.bytes("values");
      bytes_.insert(bytes_.end(), all.begin(), all.end());
    }
  }

  WireMessage message_;
  Value& value_;
  const DataType dtype_;
  std::vector<std::byte> bytes_;
};

void read_value_parts(WireMessage message, Value& value, WeightFiles& weights) {
  std::int64_t number = 0;
  while (message.next())
    if (message.field() == 1) value.parts.push_back(read_value(message.message("values", number++), weights));
}

void read_dictionary(WireMessage message, Value& value, WeightFiles& weights) {
  std::int64_t number = 0;
  while (message.next()) {
    if (message.field() != 1) continue;
    std::optional<Value> key, held;
    WireMessage pair = message.message("values", number++);
    while (pair.next()) {
      if (pair.field() == 1) key = read_value(pair.message("key"), weights);
      if (pair.field() == 2) held = read_value(pair.message("value"), weights);
    }
    if (!key || !held) pair.fail(cat("has no ", key ? "value" : "key"));
    value.dictionary.emplace_back(std::move(*key), std::move(*held));
  }
}

void read_immediate(WireMessage message, Value& value, WeightFiles& weights) {
  constexpr std::string_view kFields[] = {"", "tensor", "tuple", "list", "dictionary"};
  constexpr Kind kKinds[] = {Kind::state, Kind::tensor, Kind::tuple, Kind::list, Kind::dictionary};
  bool found = false;
  while (message.next()) {
    if (message.field() < 1 || message.field() > 4) continue;
    const std::string_view field = kFields[message.field()];
    if (kKinds[message.field()] != value.type.kind) message.fail_at(field, "is not what the type says");
    found = true;
    WireMessage part = message.message(field);
    if (value.type.kind == Kind::tensor)
      TensorReader(part, value).read();
    else if (value.type.kind == Kind::dictionary)
      read_dictionary(part, value, weights);
    else
      read_value_parts(part, value, weights);
  }
  if (!found) message.fail("holds nothing");
}

void read_blob(WireMessage message, Value& value, WeightFiles& weights) {
  std::string name;
  std::int64_t offset = 0;
  while (message.next()) {
    if (message.field() == 1) name = message.text("fileName");
    if (message.field() == 2) offset = message.integer("offset", 0, kLargest);
  }
  try {
    weights.find(value, name, static_cast<std::uint64_t>(offset));
  } catch (const Error& error) {
    message.fail(error.message(), error.code());
  }
}

}  // namespace

ValueType read_type(WireMessage message) {
  std::optional<ValueType> type;
  while (message.next()) {
    if (message.field() < 1 || message.field() > 5) continue;
    type.emplace();
    if (message.field() == 1) {
      read_tensor_type(message.message("tensorType"), *type);
    } else if (message.field() == 5) {
      read_state_type(message.message("stateType"), *type);
    } else {
      constexpr Kind kKinds[] = {Kind::list, Kind::tuple, Kind::dictionary};
      constexpr std::string_view kFields[] = {"listType", "tupleType", "dictionaryType"};
      type->kind = kKinds[message.field() - 2];
      read_parts(message.message(kFields[message.field() - 2]), *type);
    }
  }
  if (!type) message.fail("names no type");
  return *type;
}

NamedType read_named_type(WireMessage message) {
  NamedType out;
  bool typed = false;
  while (message.next()) {
    if (message.field() == 1) out.name = message.text("name");
    if (message.field() == 2) {
      out.type = read_type(message.message("type"));
      typed = true;
    }
  }
  if (out.name.empty()) message.fail_at("name", "is missing");
  if (!typed) message.fail_at("type", "is missing");
  return out;
}

Value read_value(WireMessage message, WeightFiles& weights) {
  Value value;
  std::optional<WireMessage> immediate, blob;
  bool typed = false;
  while (message.next()) {
    if (message.field() == 2) {
      value.type = read_type(message.message("type"));
      typed = true;
    }
    if (message.field() == 3) immediate = message.message("immediateValue");
    if (message.field() == 5) blob = message.message("blobFileValue");
  }
  if (!typed) message.fail_at("type", "is missing");
  if (blob)
    read_blob(*blob, value, weights);
  else if (immediate)
    read_immediate(*immediate, value, weights);
  else
    message.fail("holds neither an immediateValue nor a blobFileValue");
  if (const std::string fault = fault_of(value); !fault.empty()) message.fail(fault);
  return value;
}

}  // namespace kvtide::coreml
