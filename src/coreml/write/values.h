// values.h: constants made from numbers, and the types of tensors and states.
//
//   Value axes = ints({1, 2});                      // int32 [2]
//   Value weight = halves({64, 32}, weights);       // fp16, rounded to nearest even
//   ValueType out = tensor(DataType::fp16, {1, kUnknown, 64});
//   Value large = later(DataType::fp16, {49152, 576}, [&] { return rows_of(embedding); });
//
// Ownership: a Value owns its bytes by `keeps`; copies share them, and one storage is one weight of a file.
// Errors: invalid_argument where numbers and shape do not agree.
// Thread rules: pure functions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreml/program/program.h"

namespace kvtide::coreml {

ValueType tensor(DataType dtype, Shape shape);
ValueType state(DataType dtype, Shape shape);
inline ValueType scalar(DataType dtype) { return tensor(dtype, {}); }

Value floats(Shape shape, std::span<const float> numbers);  // fp32
Value halves(Shape shape, std::span<const float> numbers);  // fp16
Value ints(std::span<const std::int32_t> numbers);          // int32, a vector
Value ints(std::initializer_list<std::int32_t> numbers);
Value flags(const std::vector<bool>& numbers);  // bool, a vector
Value number(std::int32_t value);               // a scalar, as those below
Value number(bool value);
Value number(float value);  // fp32
Value half(float value);    // fp16
Value text(std::string_view value);

// A constant of any type; the bytes as program.h has them. Below a byte: packed.
Value raw(DataType dtype, Shape shape, std::vector<std::byte> bytes);
// The same for integers of `bits_of(dtype)` bits, one each, packed here.
Value packed(DataType dtype, Shape shape, std::span<const int> numbers);

// A constant whose bytes are made when the weight file is written, and let go again: a file may be larger than memory. One of
// fewer than 10 elements is made at once, since it does not go there.
struct LateBytes {
  std::function<std::vector<std::byte>()> make;
};
Value later(DataType dtype, Shape shape, std::function<std::vector<std::byte>()> make);

}  // namespace kvtide::coreml
