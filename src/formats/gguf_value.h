// gguf_value.h: what a GGUF file holds: values of its metadata, and tensors. Plain data.
//
// Ownership: views of the file's bytes, which must outlive them.
// Thread rules: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "tensor/dtype.h"

namespace kvtide {

enum class GgufType : std::uint32_t {
  u8 = 0,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

// "u8", "string", "array": names for messages and listings.
std::string_view gguf_type_name(GgufType type);
// Bytes of one element of a numeric or bool type; 0 for strings and arrays.
std::size_t gguf_type_bytes(GgufType type);

// One value or array of the metadata. Arrays keep their elements in the file; nested arrays are refused.
struct GgufValue {
  GgufType type = GgufType::u32;     // of the value, or `array`
  GgufType element = GgufType::u32;  // of the elements of an array
  std::uint64_t count = 1;           // elements of an array
  // When type != array: u* as uint64, i* as int64, f* as double.
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view> scalar;
  std::span<const std::byte> elements;    // raw little-endian elements of a numeric or bool array, unaligned
  std::vector<std::string_view> strings;  // elements of a string array
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

struct GgufTensor {
  std::string_view name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // fastest dimension first, as in the file: [columns, rows, ...]
  std::span<const std::byte> data;
  std::size_t part = 0;  // which file of a split model holds it
};

}  // namespace kvtide
