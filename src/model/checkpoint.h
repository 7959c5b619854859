// checkpoint.h: what a model is loaded from: its shape, its vocabulary, and tensors that are asked for by
// role.
//
// A GGUF file and a Hugging Face folder (config.json, tokenizer.json, safetensors) both are one; what is
// built from it does not know which it was.
// Ownership: owns the mapped files; tensors and the vocabulary's views are valid while it lives.
// Thread rules: const members from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "kvtide/tokenizer.h"
#include "model/config/config.h"
#include "model/config/tensor_rules.h"
#include "tensor/dtype.h"
#include "text/vocab.h"

namespace kvtide {

// A tensor where it lies in its file.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // slowest first: [rows, columns]
  std::span<const std::byte> bytes;
  std::size_t place = 0;  // for release()
  // 8-bit integers: element = scale * integer, one scale for all or one per output row. Empty: not of that
  // kind, and dtype says it all.
  std::vector<float> scales;
  // mxfp4 whose scales lie in a tensor of their own, one byte for each block of every row; then `bytes` holds their
  // elements alone, two neighbours a byte. Empty: not of that kind.
  std::span<const std::byte> block_scales;
  TensorRule rule = {};
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  const std::string& chat_template() const { return chat_template_; }  // empty: none
  const ModelConfig& config() const { return config_; }
  // What was found to contradict itself, and what was taken instead. Sentences.
  const std::vector<std::string>& notes() const { return notes_; }
  std::int64_t parameters() const { return parameters_; }           // elements of all tensors
  const std::vector<std::string>& files() const { return files_; }  // that say what the model is
  // All that hold tensors; of a split GGUF file its parts.
  const std::vector<std::string>& weight_files() const { return weight_files_; }

  // Throws Error: bad_format, unsupported.
  virtual VocabSpec vocabulary() const = 0;
  // nullopt: it has none. Throws Error(unsupported) for an element type that is not read.
  std::optional<StoredTensor> find(Role role, int layer = 0, int expert = 0) const;
  // A shape in the order in which the file writes it: for messages.
  std::vector<std::int64_t> as_written(std::vector<std::int64_t> shape) const {
    if (fastest_first_) std::reverse(shape.begin(), shape.end());
    return shape;
  }
  // Under which name find() looks first: for messages.
  std::string wanted_name(Role role, int layer, int expert = 0) const;
  // Lets go of `size` bytes of a tensor from `offset` on: they come back from the file when touched again.
  virtual void release(const StoredTensor& tensor, std::size_t offset, std::size_t size) const noexcept = 0;
  virtual void release_all() const noexcept = 0;  // of every tensor

 protected:
  virtual std::optional<StoredTensor> find_named(const std::string& name) const = 0;

  std::string path_, name_, chat_template_;
  ModelConfig config_;
  std::vector<std::string> notes_, files_, weight_files_;
  std::int64_t parameters_ = 0;
  bool fastest_first_ = false;
  std::span<const TensorRule> rules_;
};

// `path`: a GGUF file or a folder. Throws Error: not_found, bad_format, unsupported, io.
std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path,
                                            MappedFile::Mode mode = MappedFile::Mode::map);
// Its vocabulary alone: needs no weights, and of a GGUF file no architecture that is known.
Tokenizer open_tokenizer(const std::string& path, MappedFile::Mode mode = MappedFile::Mode::map);
// The two kinds.
std::unique_ptr<Checkpoint> open_gguf(const std::string& path, MappedFile::Mode mode);
std::unique_ptr<Checkpoint> open_folder(const std::string& path, MappedFile::Mode mode);

}  // namespace kvtide
