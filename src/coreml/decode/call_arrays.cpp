#include "coreml/decode/call_arrays.h"

#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace call_array_details {

template <class T>
CoremlArray array_of(CoremlType type, std::vector<std::int64_t> shape, std::span<const T> numbers) {
  CoremlArray array{type, std::move(shape), {}};
  array.bytes.resize(numbers.size_bytes());
  if (!numbers.empty()) std::memcpy(array.bytes.data(), numbers.data(), numbers.size_bytes());
  return array;
}

}  // namespace call_array_details

using call_array_details::array_of;

CoremlArray numbers_for(const CoremlFeature& feature, std::vector<std::int64_t> shape,
                        std::span<const float> numbers) {
  if (feature.type == CoremlType::f16 || feature.type == CoremlType::f32)
    return array_of(CoremlType::f32, std::move(shape), numbers);
  const std::vector<std::int32_t> whole(numbers.begin(), numbers.end());
  return array_of<std::int32_t>(CoremlType::i32, std::move(shape), whole);
}

CoremlArray ids_array(std::vector<std::int64_t> shape, std::span<const TokenId> ids) {
  return array_of(CoremlType::i32, std::move(shape), ids);
}

CoremlArray causal_mask(std::int64_t tokens, std::int64_t first, std::int64_t length) {
  std::vector<float> mask(static_cast<std::size_t>(tokens * length), 0.0f);
  for (std::int64_t i = 0; i < tokens; ++i)
    for (std::int64_t column = first + i + 1; column < length; ++column)
      mask[static_cast<std::size_t>(i * length + column)] = -std::numeric_limits<float>::infinity();
  return array_of<float>(CoremlType::f32, {1, 1, tokens, length}, mask);
}

std::vector<float> as_floats(const CoremlArray& array) {
  std::vector<float> numbers;
  if (array.type == CoremlType::f16) {
    numbers.resize(array.bytes.size() / 2);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, array.bytes.data() + 2 * i, 2);
      numbers[i] = f16_to_f32(half);
    }
  } else if (array.type == CoremlType::f32) {
    numbers.resize(array.bytes.size() / 4);
    std::memcpy(numbers.data(), array.bytes.data(), array.bytes.size());
  }
  return numbers;
}

std::vector<float> last_row(const CoremlArray& array, const std::string& name) {
  const bool half = array.type == CoremlType::f16;
  if (array.shape.empty() || array.shape.back() < 1 || array.bytes.empty() ||
      (!half && array.type != CoremlType::f32))
    throw Error(ErrorCode::unsupported, cat("the output ", quoted(name), " holds no logits: it is of ",
                                            coreml_type_name(array.type)));
  const auto width = static_cast<std::size_t>(array.shape.back());
  const std::size_t element = half ? 2 : 4;
  const std::byte* from = array.bytes.data() + (array.bytes.size() - width * element);
  std::vector<float> row(width);
  if (!half) std::memcpy(row.data(), from, width * element);
  for (std::size_t i = 0; half && i < width; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + i * element, element);
    row[i] = f16_to_f32(bits);
  }
  return row;
}

}  // namespace kvtide::coreml
