#include "coreml/program/data_type.h"

#include <limits>

namespace kvtide::coreml {
namespace {

struct TypeRow {
  DataType type;
  std::string_view name;
  int bits;
};

constexpr TypeRow kTypes[] = {
    {DataType::none, "none", 0},           {DataType::boolean, "bool", 8},   {DataType::string, "string", 0},
    {DataType::fp16, "fp16", 16},          {DataType::fp32, "fp32", 32},     {DataType::fp64, "fp64", 64},
    {DataType::bf16, "bf16", 16},          {DataType::int8, "int8", 8},      {DataType::int16, "int16", 16},
    {DataType::int32, "int32", 32},        {DataType::int64, "int64", 64},   {DataType::int4, "int4", 4},
    {DataType::uint8, "uint8", 8},         {DataType::uint16, "uint16", 16}, {DataType::uint32, "uint32", 32},
    {DataType::uint64, "uint64", 64},      {DataType::uint4, "uint4", 4},    {DataType::uint2, "uint2", 2},
    {DataType::uint1, "uint1", 1},         {DataType::uint6, "uint6", 6},    {DataType::uint3, "uint3", 3},
    {DataType::fp8e4m3fn, "fp8e4m3fn", 8}, {DataType::fp8e5m2, "fp8e5m2", 8}};

const TypeRow& row_of(DataType type) {
  for (const TypeRow& row : kTypes)
    if (row.type == type) return row;
  return kTypes[0];
}

}  // namespace

std::string_view name_of(DataType type) { return row_of(type).name; }

std::optional<DataType> data_type_named(std::string_view name) {
  for (const TypeRow& row : kTypes)
    if (row.name == name && row.type != DataType::none) return row.type;
  return std::nullopt;
}

int bits_of(DataType type) { return row_of(type).bits; }

std::optional<std::size_t> elements_of(const Shape& shape) {
  std::size_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    const auto size = static_cast<std::size_t>(extent);
    // Bits are counted too: 64 of them an element at most.
    if (size != 0 && elements > std::numeric_limits<std::size_t>::max() / 64 / size) return std::nullopt;
    elements *= size;
  }
  return elements;
}

}  // namespace kvtide::coreml
