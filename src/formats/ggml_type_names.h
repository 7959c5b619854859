// ggml_type_names.h: names of the tensor types that GGUF files use and kvtide does not read, for messages.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvtide {

// Empty for a number that nobody has given a meaning.
inline std::string_view unsupported_type_name(std::uint32_t number) {
  switch (number) {
    case 4:
      return "q4_2, withdrawn";
    case 5:
      return "q4_3, withdrawn";
    case 9:
      return "q8_1";
    case 15:
      return "q8_k";
    case 24:
      return "i8";
    case 25:
      return "i16";
    case 26:
      return "i32";
    case 27:
      return "i64";
    case 28:
      return "f64";
    case 31:
      return "q4_0_4_4, withdrawn";
    case 32:
      return "q4_0_4_8, withdrawn";
    case 33:
      return "q4_0_8_8, withdrawn";
    case 40:
      return "nvfp4";
    case 41:
      return "q1_0";
    default:
      return {};
  }
}

}  // namespace kvtide
