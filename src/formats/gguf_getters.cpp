// The typed getters of GgufFile: the one place where metadata turns into numbers that other floors use.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "formats/gguf.h"
#include "formats/gguf_parse.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

std::string type_text(const GgufValue& value) {
  if (value.type != GgufType::array) return std::string(gguf_type_name(value.type));
  return cat("array of ", gguf_type_name(value.element));
}

// Calls use(i, element) for each element of a numeric or bool array, with the element's own type.
template <class Use>
void for_each_element(const GgufValue& value, Use use) {
  const auto walk = [&]<class T>(T) {
    for (std::size_t i = 0; i < value.count; ++i) {
      T element;
      std::memcpy(&element, value.elements.data() + i * sizeof(T), sizeof(T));
      use(i, element);
    }
  };
  switch (value.element) {
    case GgufType::u8:
    case GgufType::boolean:
      return walk(std::uint8_t{});
    case GgufType::i8:
      return walk(std::int8_t{});
    case GgufType::u16:
      return walk(std::uint16_t{});
    case GgufType::i16:
      return walk(std::int16_t{});
    case GgufType::u32:
      return walk(std::uint32_t{});
    case GgufType::i32:
      return walk(std::int32_t{});
    case GgufType::u64:
      return walk(std::uint64_t{});
    case GgufType::i64:
      return walk(std::int64_t{});
    case GgufType::f32:
      return walk(float{});
    case GgufType::f64:
      return walk(double{});
    case GgufType::string:
    case GgufType::array:
      return;
  }
}

bool is_float(GgufType type) { return type == GgufType::f32 || type == GgufType::f64; }
bool is_numeric_array(const GgufValue& value) {
  return value.type == GgufType::array && value.element != GgufType::string;
}

}  // namespace

void GgufFile::wrong(std::string_view key, std::string_view message) const {
  throw Error(ErrorCode::bad_format, cat(path_, ": key ", quoted(key), ": ", message));
}

void GgufFile::wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const {
  wrong(key, cat("is of type ", type_text(value), "; ", wanted, " is needed"));
}

std::optional<std::string_view> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::string) wrong_type(key, *value, "a string");
  return std::get<std::string_view>(value->scalar);
}

std::optional<std::uint64_t> GgufFile::get_uint(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::array) wrong_type(key, *value, "an integer");
  if (const auto* whole = std::get_if<std::uint64_t>(&value->scalar)) return *whole;
  if (const auto* whole = std::get_if<std::int64_t>(&value->scalar)) {
    if (*whole < 0) wrong(key, cat("is ", *whole, "; it must not be negative"));
    return static_cast<std::uint64_t>(*whole);
  }
  wrong_type(key, *value, "an integer");
}

std::optional<double> GgufFile::get_number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::array) wrong_type(key, *value, "a number");
  if (const auto* whole = std::get_if<std::uint64_t>(&value->scalar)) return static_cast<double>(*whole);
  if (const auto* whole = std::get_if<std::int64_t>(&value->scalar)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value->scalar)) {
    if (!std::isfinite(*real)) wrong(key, cat("is ", *real, "; it must be finite"));
    return *real;
  }
  wrong_type(key, *value, "a number");
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::boolean) wrong_type(key, *value, "a bool");
  return std::get<bool>(value->scalar);
}

std::optional<std::span<const std::string_view>> GgufFile::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::array || value->element != GgufType::string)
    wrong_type(key, *value, "an array of strings");
  return value->strings;
}

std::optional<std::vector<double>> GgufFile::get_numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_numeric_array(*value)) wrong_type(key, *value, "an array of numbers");
  std::vector<double> numbers(value->count);
  for_each_element(*value, [&](std::size_t i, auto element) {
    numbers[i] = static_cast<double>(element);
    if (!std::isfinite(numbers[i])) wrong(key, cat("element ", i, " is ", numbers[i], "; it must be finite"));
  });
  return numbers;
}

std::optional<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::array || !is_float(value->element))
    wrong_type(key, *value, "an array of floats");
  std::vector<float> floats(value->count);
  for_each_element(*value, [&](std::size_t i, auto number) {
    const auto element = static_cast<double>(number);
    // Written so that NaN fails, too; a double beyond f32 must not even be converted.
    if (!(std::fabs(element) <= std::numeric_limits<float>::max()))
      wrong(key, cat("element ", i, " is ", element, "; it must be a finite f32"));
    floats[i] = static_cast<float>(element);
  });
  return floats;
}

std::optional<std::vector<std::int32_t>> GgufFile::get_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_numeric_array(*value) || is_float(value->element)) wrong_type(key, *value, "an array of integers");
  std::vector<std::int32_t> ints(value->count);
  for_each_element(*value, [&](std::size_t i, auto element) {
    if constexpr (std::is_integral_v<decltype(element)>) {
      if (!std::in_range<std::int32_t>(element))
        wrong(key, cat("element ", i, " is ", +element, "; it must fit into 32 bits with a sign"));
      ints[i] = static_cast<std::int32_t>(element);
    }
  });
  return ints;
}

}  // namespace kvtide
