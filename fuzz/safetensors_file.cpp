// safetensors_file.cpp: libFuzzer target for safetensors files, and for JSON of any kind.
//
// What is accepted has to lie inside the file, side by side; anything else has to be refused with bad_format.
#include <cstdint>
#include <string_view>

#include "base/json/json_value.h"
#include "formats/safetensors.h"
#include "fuzz/fuzzing.h"
#include "kvtide/error.h"

using kvtide::fuzzing::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const kvtide::SafeTensors found = kvtide::SafeTensors::parse(bytes, "input");
    std::size_t total = 0;
    for (const auto& [name, tensor] : found.tensors) {
      require(tensor.bytes.data() >= bytes.data() &&
              tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
      total += tensor.bytes.size();
    }
    require(total < size);
  } catch (const kvtide::Error& error) {
    require(error.code() == kvtide::ErrorCode::bad_format);
  }
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    require(!kvtide::JsonValue::parse(text, "input").kind().empty());
  } catch (const kvtide::Error& error) {
    require(error.code() == kvtide::ErrorCode::bad_format);
  }
  return 0;
}
