// safetensors_writer.h: a safetensors file from named arrays: what the strict reader (safetensors.h) accepts.
//
// Ownership: owns what was added.
// Thread rules: one thread.
// Invariants
//   1. Names are unique; every array has exactly the bytes that its shape and type need.
//   2. Tensors lie without gaps in the order of their element size, then of their names, so that every one
//      is aligned to its elements; the header is padded with spaces to a multiple of 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace kvtide {

class SafeTensorsWriter {
 public:
  // dtype: "F32", "F16", "BF16", "I32", "I8", "U8". Throws Error(invalid_argument) for a name that is there,
  // a type that is not written, and bytes that do not fit the shape.
  void add(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape,
           std::vector<std::byte> bytes);
  void set_metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }

  struct Written {
    std::uint64_t bytes = 0;
    std::uint32_t crc32c = 0;  // of the whole file
  };
  // Atomic and durable (file.h). Throws Error(io).
  Written save(FileSystem& files, const std::string& path) const;

 private:
  struct Array {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
    std::uint64_t element_bytes = 0;
  };
  std::string header(const std::vector<const Array*>& order) const;

  std::vector<Array> arrays_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace kvtide
