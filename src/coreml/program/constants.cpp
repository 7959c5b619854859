#include "coreml/program/constants.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/text.h"
#include "coreml/program/data_type.h"

namespace kvtide::coreml {
namespace {

bool is_signed(DataType dtype) {
  return dtype == DataType::int8 || dtype == DataType::int16 || dtype == DataType::int32 ||
         dtype == DataType::int64;
}

bool is_unsigned(DataType dtype) {
  return dtype == DataType::uint8 || dtype == DataType::uint16 || dtype == DataType::uint32 ||
         dtype == DataType::uint64;
}

}  // namespace

std::string fault_of(const Value& value) {
  const ValueType& type = value.type;
  if (type.kind == ValueType::Kind::state) return "is a state; a constant is none";
  if (type.kind != ValueType::Kind::tensor) return "";
  const auto elements = elements_of(type.shape);
  if (type.any_rank || !elements) return "has no known shape; a constant must have one";
  if (type.dtype == DataType::string)
    return value.strings.size() == *elements
               ? ""
               : cat("holds ", value.strings.size(), " strings; its shape needs ", *elements);
  const std::size_t needed = bytes_for(type.dtype, *elements);
  if (value.bytes.size() != needed)
    return cat("holds ", value.bytes.size(), " bytes; ", *elements, " elements of ", name_of(type.dtype),
               " have ", needed);
  if (type.dtype == DataType::boolean)
    for (const std::byte each : value.bytes)
      if (each > std::byte{1}) return "holds a boolean that is neither 0 nor 1";
  return "";
}

bool append_whole(std::vector<std::byte>& bytes, DataType dtype, std::int64_t number) {
  const bool boolean = dtype == DataType::boolean;
  if (!boolean && !is_signed(dtype) && !is_unsigned(dtype)) return false;
  if (boolean) number = number != 0 ? 1 : 0;
  const int bits = bits_of(dtype);
  // uint64 has the field of int64 and its bits.
  if (bits < 64) {
    const std::int64_t limit = std::int64_t{1} << (is_signed(dtype) ? bits - 1 : bits);
    if (number >= limit || number < (is_signed(dtype) ? -limit : 0)) return false;
  }
  const std::size_t size = static_cast<std::size_t>(bits) / 8, begin = bytes.size();
  bytes.resize(begin + size);
  std::memcpy(bytes.data() + begin, &number, size);
  return true;
}

void own_bytes(Value& value, std::vector<std::byte> bytes) {
  auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  value.bytes = *kept;
  value.keeps = std::move(kept);
}

}  // namespace kvtide::coreml
