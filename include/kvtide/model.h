// model.h: a language model: weights, shape and vocabulary. Read-only once loaded.
//
// Loaded from a GGUF file or from a Hugging Face folder (config.json, tokenizer.json, safetensors).
// Ownership: a Model owns everything it needs; sessions refer to it and must not outlive it.
// Thread rules: const members from any thread; any number of sessions may share one model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtide/tokenizer.h"

namespace kvtide {

struct LoadedModel;  // internals, for the engine

struct ModelOptions {    // change only speed or memory
  int threads = 0;       // for loading; 0: as many as the machine has
  bool map_file = true;  // false: copy the file into memory, immune to other programs that shorten it
};

class Model {
 public:
  // Throws Error: not_found, bad_format, unsupported, numeric (NaN or infinity in the weights), io,
  // out_of_memory.
  explicit Model(const std::string& path, const ModelOptions& options = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const std::string& path() const;
  const std::string& name() const;          // general.name, or the file's name
  const std::string& architecture() const;  // "llama", "gemma3", ...
  // What the files contradict each other in, and what was taken; sentences. Empty for most models.
  const std::vector<std::string>& notes() const;
  std::int64_t context_length() const;  // tokens the model was trained to see
  std::int64_t vocabulary() const;      // number of tokens, the length of a row of logits
  std::int64_t parameters() const;      // elements of all tensors
  int layers() const;
  const Tokenizer& tokenizer() const;
  const std::string& chat_template() const;  // the file's Jinja text; empty: none

  std::int64_t weights_bytes() const;     // weights in memory, packed or mapped
  std::int64_t vocabulary_bytes() const;  // tables of the tokenizer, estimated from its texts

  // What a state of this model says it belongs to: hashes of the weights and the vocabulary. cache: folder
  // that remembers them between runs; empty: none.
  std::map<std::string, std::string> identity(const std::string& cache = "") const;

  const LoadedModel& internals() const { return *loaded_; }

 private:
  std::unique_ptr<LoadedModel> loaded_;
};

// What a user gave for a model, as a path. A path stays what it is: what is there, has a slash or ends with .gguf. Anything
// else is the name of a model in a folder, or its beginning; capitals, dashes and dots do not count. Empty: no folder.
// Throws Error: not_found, invalid_argument (several begin so); the message begins with the name.
std::string model_path(const std::string& path_or_name, const std::string& folder);

// Seconds that forward passes spent, by what on.
struct PassTimes {
  double matmul = 0.0;     // matrix products of the layers
  double quantise = 0.0;   // activations to 8 bits
  double attention = 0.0;  // scores, softmax and mixing of values
  double rows = 0.0;       // norms, rotations, activations, sums; rows into the KV memory
  double head = 0.0;       // logits
  double seal = 0.0;       // a procedural memory's compression
  double rest = 0.0;       // everything else of a pass
  double total() const { return matmul + quantise + attention + rows + head + seal + rest; }
  friend PassTimes operator-(const PassTimes& a, const PassTimes& b) {
    return {a.matmul - b.matmul, a.quantise - b.quantise, a.attention - b.attention,
            a.rows - b.rows,     a.head - b.head,         a.seal - b.seal,
            a.rest - b.rest};
  }
};

}  // namespace kvtide
