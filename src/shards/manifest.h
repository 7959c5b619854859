// manifest.h: what manifest.json of a folder of shards says, as plain data; read and checked, or written.
//
// Thread rules: pure functions.
// Invariants of what read_manifest returns
//   1. One embedding; one attention shard and one mlp or moe shard for every layer; heads that cover the
//      vocabulary once, in order. Names and files are unique; a file is a bare name.
//   2. Every shard lists the tensors that its kind needs, with the shapes that the model's numbers ask for.
// The shape of the model is a ModelConfig, whose `ropes` hold bases only: what turns a head is `rope_tables`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/shard.h"
#include "model/config/config.h"

namespace kvtide {

struct RopeFrequencies {
  double theta = 0.0;               // the base, for the reader; frequencies say it all
  double magnitude = 1.0;           // of both cosine and sine
  std::vector<double> frequencies;  // [rope_dims / 2] radians per position
};

struct TensorEntry {
  std::string name;   // "query.weight"
  std::string dtype;  // "F16", "F32", "I8" (beside "<name>_scale")
  std::vector<std::int64_t> shape;
  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct FileEntry {
  std::string file;  // a bare name, or one in tokenizer/
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

struct ShardEntry {
  ShardInfo info;
  FileEntry file;
  std::string attention = "gqa";  // kind of attention: "gqa", or "cca" (cca.h)
  std::int64_t experts = 1;       // of an mlp or moe shard
  std::vector<TensorEntry> tensors;
};

struct ShardManifest {
  ModelConfig config;         // layers: as many as there are, with their windows and ropes
  std::string name, weights;  // of the model; how its weights were made smaller
  std::int64_t slots = 0, t_max = 0;
  std::optional<TokenId> bos;
  std::vector<TokenId> eos;
  std::vector<RopeFrequencies> ropes;
  std::string tokenizer;  // "folder" or "gguf"
  std::vector<FileEntry> tokenizer_files;
  std::vector<ShardEntry> shards;

  const ShardEntry* find(std::string_view shard) const;  // nullptr: absent
};

inline constexpr std::int64_t kMostColumns = 4;
inline constexpr std::int64_t kMostSlots = std::int64_t{1} << 20;
inline constexpr const char* kManifestFile = "manifest.json";

// A tensor that a shard needs or may have. columns 0: a vector. `numbers`: taken element by element, never in
// a matrix product, and so no 8-bit integers whatever its shape.
struct TensorNeed {
  std::string name;
  std::int64_t rows = 0, columns = 0;
  bool optional = false;
  bool numbers = false;
};
std::vector<TensorNeed> tensor_needs(const ModelConfig& config, const ShardEntry& shard);

// Bytes of the state of one attention shard and one sequence, which takes them all when it is made.
std::int64_t shard_state_bytes(const ModelConfig& config, std::int64_t slots);

// Throws Error: not_found, bad_format, unsupported; messages name the file, the shard and what would be
// right.
ShardManifest read_manifest(const std::string& folder);
// What read_manifest checks beyond the syntax. `file`: its name, for messages.
void check_manifest(const ShardManifest& manifest, const std::string& file);

std::string manifest_text(const ShardManifest& manifest);

}  // namespace kvtide
