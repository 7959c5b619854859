// walk.h: touches everything that an opened file offers, as later code may: every key, string, element and
// weight.
//
// Under the address sanitizer a view that leaves the file ends the test. The sum keeps the reads from being
// removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/gguf.h"
#include "kvtide/error.h"

namespace kvtide::testing {

inline std::uint64_t touch(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (const std::byte byte : bytes) sum = sum * 31 + static_cast<std::uint64_t>(byte);
  return sum;
}

inline std::uint64_t touch(std::string_view text) { return touch(std::as_bytes(std::span(text))); }

// Every typed getter must give a value or refuse with bad_format; anything else escapes.
template <class Get>
bool get_or_refuse(Get get) {
  try {
    return get().has_value();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_format) throw;
    return false;
  }
}

inline std::uint64_t walk(const GgufFile& file) {
  std::uint64_t sum = file.version() + file.file_bytes();
  // Refusals are exceptions, which are slow in large numbers: of more than 1024 keys, the getters see a
  // sample.
  const std::size_t step = 1 + file.metadata().size() / 1024;
  std::size_t at = 0;
  for (const GgufEntry& entry : file.metadata()) {
    const std::string_view key = entry.key;
    const GgufValue& value = entry.value;
    sum += touch(key) + touch(value.elements) + static_cast<std::uint64_t>(value.scalar.index());
    if (const auto* text = std::get_if<std::string_view>(&value.scalar)) sum += touch(*text);
    for (const std::string_view text : value.strings) sum += touch(text);
    sum += file.find(key) == &value ? 1 : 0;
    if (at++ % step != 0) continue;
    sum += get_or_refuse([&] { return file.get_string(key); });
    sum += get_or_refuse([&] { return file.get_uint(key); });
    sum += get_or_refuse([&] { return file.get_number(key); });
    sum += get_or_refuse([&] { return file.get_bool(key); });
    sum += get_or_refuse([&] { return file.get_strings(key); });
    sum += get_or_refuse([&] { return file.get_numbers(key); });
    sum += get_or_refuse([&] { return file.get_floats(key); });
    sum += get_or_refuse([&] { return file.get_ints(key); });
  }
  for (const GgufTensor& tensor : file.tensors()) {
    sum += touch(tensor.name) + touch(tensor.data) + (file.find_tensor(tensor.name) == &tensor ? 1 : 0);
    for (const std::int64_t length : tensor.shape) sum += static_cast<std::uint64_t>(length);
  }
  return sum;
}

}  // namespace kvtide::testing
