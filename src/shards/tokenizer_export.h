// tokenizer_export.h: the vocabulary of a model, beside its shards in tokenizer/, and read back from there.
//
// Of a Hugging Face folder: copies of the files that say it. Of a GGUF file: a GGUF file of the vocabulary
// alone. Either is read by what reads the model's own.
#pragma once

#include <string>
#include <vector>

#include "kvtide/tokenizer.h"
#include "model/checkpoint.h"
#include "shards/manifest.h"

namespace kvtide {

// Fills in the manifest's tokenizer. `folder` exists. Throws Error(io).
void export_tokenizer(const Checkpoint& checkpoint, const std::string& model, const std::string& folder,
                      ShardManifest& manifest);

// Throws what reading a vocabulary throws.
Tokenizer open_shard_tokenizer(const std::string& folder, const ShardManifest& manifest);

}  // namespace kvtide
