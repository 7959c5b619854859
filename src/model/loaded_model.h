// loaded_model.h: what a Model holds.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/model.h"
#include "kvtide/tokenizer.h"
#include "model/checkpoint.h"
#include "model/weights.h"

namespace kvtide {

struct LoadedModel {
  std::string path, name, chat_template;
  std::vector<std::string> files;  // that the model was read from
  std::vector<std::string> notes;  // what they contradict each other in, and what was taken
  std::int64_t parameters = 0;
  std::int64_t vocabulary_bytes = 0;
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;  // kept only while weights are used where they lie in it
  std::optional<Tokenizer> tokenizer;
  std::optional<Weights> weights;

  mutable std::mutex identity_mutex;  // of the two hashes, which are computed when first needed
  mutable std::string model_hash, vocabulary_hash;
};

}  // namespace kvtide
