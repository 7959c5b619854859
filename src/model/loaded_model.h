// loaded_model.h: what a Model holds.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "formats/gguf.h"
#include "kvtide/model.h"
#include "kvtide/tokenizer.h"
#include "model/config.h"
#include "model/weights.h"

namespace kvtide {

struct LoadedModel {
  std::string path, name, chat_template;
  std::int64_t parameters = 0;
  std::int64_t vocabulary_bytes = 0;
  ModelConfig config;
  std::optional<GgufFile> file;  // kept only while weights are used where they lie in it
  std::optional<Tokenizer> tokenizer;
  std::optional<Weights> weights;

  mutable std::mutex identity_mutex;  // of the two hashes, which are computed when first needed
  mutable std::string model_hash, vocabulary_hash;
};

}  // namespace kvtide
