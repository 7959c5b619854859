// safetensors.h: a safetensors file: named tensors and text metadata, checked, in place.
//
// Format: a 64-bit length, a JSON object of that length ({name: {dtype, shape, data_offsets}} and
// "__metadata__", an object of texts), then the tensors' bytes, one after another without gaps.
// Ownership: tensors refer to the bytes given to parse.
// Thread rules: a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvtide {

struct SafeTensor {
  std::string dtype;  // "F32", "F16", "I32", ... as in the file
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

struct SafeTensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, SafeTensor> tensors;

  // `file`: its name, for messages. Throws Error(bad_format) naming the tensor and the rule it breaks.
  static SafeTensors parse(std::span<const std::byte> bytes, std::string_view file);
};

}  // namespace kvtide
