// loaded_model.h: what a Model holds.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/model.h"
#include "kvtide/tokenizer.h"
#include "model/checkpoint.h"
#include "model/weights.h"

namespace kvtide {

// Of the files and of the vocabulary: computed when first needed, and then for good. Thread rules: any
// thread. Threads that ask at the same moment all compute: a lock that one of them held while another forks
// would stay locked in the child for ever.
class ModelHashes {
 public:
  struct Values {
    std::string model, vocabulary;
  };
  ModelHashes() = default;
  ~ModelHashes() { delete values_.load(std::memory_order_acquire); }
  ModelHashes(const ModelHashes&) = delete;
  ModelHashes& operator=(const ModelHashes&) = delete;

  const Values* get() const noexcept { return values_.load(std::memory_order_acquire); }  // nullptr: not yet
  // The first that come stay.
  const Values& set(std::unique_ptr<const Values> computed) noexcept {
    const Values* there = nullptr;
    if (!values_.compare_exchange_strong(there, computed.get(), std::memory_order_acq_rel)) return *there;
    return *computed.release();
  }

 private:
  std::atomic<const Values*> values_{nullptr};
};

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
  PackedUse packed;

  mutable ModelHashes hashes;
};

}  // namespace kvtide
