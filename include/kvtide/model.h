// model.h: a language model: weights, shape and vocabulary. Read-only once loaded.
//
// Loaded from a GGUF file or from a Hugging Face folder (config.json, tokenizer.json, safetensors).
// Ownership: a Model owns everything it needs; sessions refer to it and must not outlive it.
// Thread rules: const members from any thread; any number of sessions may share one model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/tokenizer.h"

namespace kvtide {

struct LoadedModel;  // internals, for the engine

// Weights are packed for the kernels when a model is loaded. Kept in a file, they are mapped by every later load:
// it takes a moment, and the processes that use a model share the file's pages. Speed and memory only: all bits
// are the same.
struct PackedOptions {
  std::string folder;  // a cache; empty: none. One that cannot be written, or is full, is no error
  std::int64_t limit = std::int64_t{32} << 30;     // bytes in it: what was used longest ago goes first
  std::int64_t smallest = std::int64_t{16} << 20;  // a model with fewer bytes of weights is packed each time
  std::string file;     // made by pack_model(); looked for before PATH.packed beside the model and the cache
  bool verify = false;  // compare all sums, not only once after every start of the machine
};

struct ModelOptions {    // all but `context` change only speed or memory
  int threads = 0;       // for loading; 0: as many as the machine has
  bool map_file = true;  // false: copy the file into memory, immune to other programs that shorten it;
                         // packed weights are then not mapped, either
  PackedOptions packed = {};
  // The longest text that sessions will hold; 0: what the model was trained for. Matters to models that rotate short
  // and long texts differently (longrope): within its original context such a model is one of short texts.
  std::int64_t context = 0;
};

// Where the packed weights of a model are.
struct PackedUse {
  std::string file;                // mapped from; empty: in memory of this process
  bool made = false;               // by this load
  std::int64_t bytes = 0;          // in that file
  std::vector<std::string> notes;  // which file was of no use, and why; sentences
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
  std::string title() const;                // the name as people know it; for them only
  const std::string& architecture() const;  // "llama", "gemma3", ...
  // What the files contradict each other in, and what was taken; sentences. Empty for most models.
  const std::vector<std::string>& notes() const;
  std::int64_t context_length() const;  // tokens the model was trained to see
  std::int64_t vocabulary() const;      // number of tokens, the length of a row of logits
  std::int64_t parameters() const;      // elements of all tensors
  int layers() const;
  const Tokenizer& tokenizer() const;
  const std::string& chat_template() const;  // the file's Jinja text; empty: none

  std::int64_t weights_bytes() const;  // weights in memory, packed or mapped
  const PackedUse& packed() const;
  // Gives the memory of weights that lie in files back to the system. They come back from there when they are used
  // next, so it costs time alone. Weights that this process packed for itself stay.
  void release_pages() const noexcept;
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

// Packs the weights of the model at `path` into the file `out`, for PackedOptions::file or to lie beside the model.
// Returns its bytes. Throws as Model does; an old file is then untouched.
std::int64_t pack_model(const std::string& path, const std::string& out, const ModelOptions& options = {});

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

// Models that other programs have on this machine. Only looks: nothing is downloaded and nothing is written. Who calls says
// where the folders are.
// Folders; empty: none.
struct ModelStores {
  std::string hugging_face;  // the hub's cache: models--ORG--NAME/snapshots/...
  std::string ollama;        // manifests/HOST/OWNER/NAME/TAG and blobs/
  std::string lmstudio;      // ORG/NAME/FILE.gguf
};

// hf:ORG/NAME[@REVISION][/FILE]: a branch, a tag or the beginning of a commit; main where there is none. Without FILE
//   the folder where it has a config.json, else the GGUF file where there is one only.
// ollama:[[HOST/]OWNER/]NAME[:TAG]: the file behind the manifest; tag latest where there is none.
// lmstudio:ORG/NAME[/FILE]: likewise.
// The path of what `name` means; nullopt where it begins with none of these words. Throws Error: not_found (it names the
// folder that was looked in), invalid_argument (several files, all of which are listed; a name that makes no sense),
// bad_format (a manifest), unsupported (a model in parts that are not files of their own).
std::optional<std::string> stored_model(const std::string& name, const ModelStores& stores);

}  // namespace kvtide
