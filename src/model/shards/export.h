// export.h: a model split into shards: one file for the embedding, for the attention and the feed-forward of
// every layer, and for each range of the vocabulary; a manifest, and the tokenizer.
//
// The folder appears complete or not at all. docs/shards.md says what is in which file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/shards/manifest.h"

namespace kvtide {

struct ShardExport {
  enum class Type { f16, int8 };
  enum class Scales { tensor, channel };  // of int8: one for a matrix, or one for each of its outputs

  Type type = Type::f16;
  Scales scales = Scales::channel;
  std::int64_t min_elements = 2048;   // smaller matrices stay f16
  std::vector<std::string> keep_f16;  // "query", or "attention.3/query" of one shard
  std::optional<std::int64_t> slots;  // S; nullopt: 2048, or fewer where fewer positions were learned
  int head_shards = 1;
  int threads = 0;  // changes only speed; 0: as many as the machine has
  std::function<void(const ShardEntry&)> on_shard =
      {};  // told after each file; what it throws ends the export
};

// `model`: a GGUF file or a Hugging Face folder; `folder`: does not exist, or is empty. Throws Error:
// invalid_argument (the folder holds something, names in keep_f16 that no matrix has, more heads than the
// vocabulary allows), numeric (a weight that f16 cannot hold), io, and what loading a model throws.
ShardManifest export_shards(const std::string& model, const std::string& folder, const ShardExport& options);

}  // namespace kvtide
