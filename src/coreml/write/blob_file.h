// blob_file.h: the weight file of a package, blob storage version 2.
//
// A header of 64 bytes, then for each weight a record of 64 bytes and its bytes, every record at a multiple of 64. A value of
// the program says where its record is. Two values that share their bytes are one weight.
// Source: coremltools' mlmodel/src/MILBlob/Blob/StorageFormat.hpp.
// Ownership: keeps the values, and so their bytes, until save(). Bytes that are made late are made one weight at a time.
// Thread rules: one caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coreml/program/program.h"

namespace kvtide::coreml {

// Constants of fewer elements stand in the program.
inline constexpr std::size_t kLeastBlobElements = 10;

// Whether a constant goes into the weight file. `specification`: 16- and 32-bit integers do so since 9.
bool goes_to_blob(const Value& value, int specification);

class BlobFile {
 public:
  std::uint64_t add(const Value& value);  // where its record will be
  bool empty() const { return weights_.empty(); }
  // Throws Error(io).
  void save(const std::string& path) const;

 private:
  std::vector<std::pair<std::uint64_t, Value>> weights_;
  std::map<std::pair<const void*, DataType>, std::pair<std::size_t, std::uint64_t>> known_;
  std::uint64_t end_ = 64;
};

}  // namespace kvtide::coreml
