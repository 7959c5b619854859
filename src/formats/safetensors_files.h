// safetensors_files.h: the weights of a folder: model.safetensors, or the shards that
// model.safetensors.index.json lists.
//
// Opening checks every file (safetensors.h) and the index against them.
// Ownership: owns the mapped files; tensors are valid while it lives, also after a move.
// Thread rules: const members from any thread.
// Invariants (each is refused otherwise)
//   1. A shard's name is a bare file name: nothing outside the folder is opened.
//   2. A tensor lies in one file, and in the one that the index says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "formats/safetensors.h"

namespace kvtide {

class SafeTensorsFiles {
 public:
  struct Tensor {
    std::string name;
    SafeTensor value;
    std::size_t file = 0;  // index into paths()
  };

  // Throws Error: not_found (neither of the two is there), bad_format, io.
  explicit SafeTensorsFiles(const std::string& folder, MappedFile::Mode mode = MappedFile::Mode::map);

  const std::vector<std::string>& paths() const { return paths_; }
  std::uint64_t file_bytes() const;
  const std::vector<Tensor>& tensors() const { return tensors_; }  // sorted by name
  const Tensor* find(std::string_view name) const;                 // nullptr: absent

  // Drops the pages of `size` bytes of a tensor from the resident set; they come back from the file.
  void release(const Tensor& tensor, std::size_t offset, std::size_t size) const noexcept;

 private:
  void add(const std::string& path, MappedFile::Mode mode);

  std::vector<std::string> paths_;
  std::vector<MappedFile> files_;
  std::vector<Tensor> tensors_;
};

}  // namespace kvtide
