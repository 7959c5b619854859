// weight_files.h: the weight files of one model, blob storage version 2, mapped when a value first asks for them.
//
// Ownership: mappings live as long as a value that points into them (Value::keeps) or the WeightFiles.
// Errors: bad_format, not_found, unsupported; messages begin with the file's name in the package.
// Thread rules: one thread.
// Source: coremltools, mlmodel/src/MILBlob/Blob/StorageFormat.hpp.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "coreml/program/program.h"

namespace kvtide::coreml {

// The bytes of the record at `offset` of a weight file, for elements of this type; `file` for messages.
std::span<const std::byte> weight_at(std::span<const std::byte> blob, std::uint64_t offset, DataType dtype,
                                     std::size_t elements, std::string_view file);

class WeightFiles {
 public:
  // `folder`: what "@model_path" stands for.
  explicit WeightFiles(std::string folder) : folder_(std::move(folder)) {}

  // Points `value`, whose type is known, at the record. `name`: "@model_path/weights/weight.bin".
  void find(Value& value, std::string_view name, std::uint64_t offset);

  std::vector<std::string> paths() const;  // of the files that were asked for, in the order of their names

 private:
  struct WeightFile {
    std::string name;  // "@model_path/weights/weight.bin"
    MappedFile file;
  };

  const std::shared_ptr<const WeightFile>& open(const std::string& inside);

  std::string folder_;
  std::map<std::string, std::shared_ptr<const WeightFile>> files_;
};

// A path inside a package: relative, by names only. Throws Error(bad_format): "WHAT 'PATH': ...".
void check_inside(std::string_view path, std::string_view what);

}  // namespace kvtide::coreml
