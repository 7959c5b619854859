#include "coreml/write/values.h"

#include <cstring>

#include "base/half.h"
#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/write/blob_file.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

template <class T>
Value stored(DataType dtype, Shape shape, std::span<const T> numbers) {
  std::vector<std::byte> bytes(numbers.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return raw(dtype, std::move(shape), std::move(bytes));
}

template <class T>
Value one(DataType dtype, T value) {
  return stored(dtype, {}, std::span<const T>(&value, 1));
}

}  // namespace

ValueType tensor(DataType dtype, Shape shape) {
  ValueType type;
  type.dtype = dtype;
  type.shape = std::move(shape);
  return type;
}

ValueType state(DataType dtype, Shape shape) {
  ValueType type = tensor(dtype, std::move(shape));
  type.kind = ValueType::Kind::state;
  return type;
}

Value raw(DataType dtype, Shape shape, std::vector<std::byte> bytes) {
  const auto elements = elements_of(shape);
  if (!elements || bytes_for(dtype, *elements) != bytes.size())
    throw Error(ErrorCode::invalid_argument,
                cat("a constant of ", elements.value_or(0), " elements of ", name_of(dtype), " has ",
                    elements ? bytes_for(dtype, *elements) : 0, " bytes, not ", bytes.size()));
  Value value;
  value.type = tensor(dtype, std::move(shape));
  auto keeps = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  value.bytes = *keeps;
  value.keeps = std::move(keeps);
  return value;
}

Value packed(DataType dtype, Shape shape, std::span<const int> numbers) {
  const auto bits = static_cast<std::size_t>(bits_of(dtype));
  std::vector<std::byte> bytes(bytes_for(dtype, numbers.size()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    for (std::size_t b = 0; b < bits; ++b)
      if ((static_cast<unsigned>(numbers[i]) >> b) & 1u)
        bytes[(i * bits + b) / 8] |= std::byte{1} << ((i * bits + b) % 8);
  return raw(dtype, std::move(shape), std::move(bytes));
}

Value floats(Shape shape, std::span<const float> numbers) {
  return stored(DataType::fp32, std::move(shape), numbers);
}

Value halves(Shape shape, std::span<const float> numbers) {
  std::vector<std::uint16_t> rounded(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) rounded[i] = f32_to_f16(numbers[i]);
  return stored(DataType::fp16, std::move(shape), std::span<const std::uint16_t>(rounded));
}

Value ints(std::span<const std::int32_t> numbers) {
  return stored(DataType::int32, {static_cast<std::int64_t>(numbers.size())}, numbers);
}

Value ints(std::initializer_list<std::int32_t> numbers) {
  return ints(std::span<const std::int32_t>(numbers.begin(), numbers.size()));
}

Value flags(const std::vector<bool>& numbers) {
  const std::vector<std::uint8_t> bytes(numbers.begin(), numbers.end());
  return stored(DataType::boolean, {static_cast<std::int64_t>(bytes.size())},
                std::span<const std::uint8_t>(bytes));
}

Value number(std::int32_t value) { return one(DataType::int32, value); }
Value number(bool value) { return one(DataType::boolean, static_cast<std::uint8_t>(value)); }
Value number(float value) { return one(DataType::fp32, value); }
Value half(float value) { return one(DataType::fp16, f32_to_f16(value)); }

Value text(std::string_view value) {
  Value made;
  made.type = scalar(DataType::string);
  made.strings.emplace_back(value);
  return made;
}

Value later(DataType dtype, Shape shape, std::function<std::vector<std::byte>()> make) {
  if (elements_of(shape).value_or(0) < kLeastBlobElements) return raw(dtype, std::move(shape), make());
  Value value;
  value.type = tensor(dtype, std::move(shape));
  value.late = std::make_shared<const LateBytes>(LateBytes{std::move(make)});
  return value;
}

}  // namespace kvtide::coreml
