#include "coreml/run/counter.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::coreml {

bool is_counter(std::span<const std::int64_t> shape) {
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t size) { return size == 1; });
}

void set_counter(CoremlArray& counter, std::string_view name, std::int64_t count) {
  const auto number = static_cast<float>(count);
  const auto whole = static_cast<std::int32_t>(count);
  const std::uint16_t half = f32_to_f16(number);
  const auto put = [&](const auto& element, bool says) {
    if (!says || counter.bytes.size() != sizeof element)
      throw Error(ErrorCode::unsupported,
                  cat("the state ", quoted(name), " is of ", coreml_type_name(counter.type),
                      ", which cannot count ", count));
    std::memcpy(counter.bytes.data(), &element, sizeof element);
  };
  if (counter.type == CoremlType::f16)
    put(half, static_cast<std::int64_t>(f16_to_f32(half)) == count);
  else if (counter.type == CoremlType::f32)
    put(number, static_cast<std::int64_t>(number) == count);
  else
    put(whole, counter.type == CoremlType::i32 && whole == count);
}

}  // namespace kvtide::coreml
