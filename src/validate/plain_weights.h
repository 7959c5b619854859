// plain_weights.h: the weights of a model as a plain forward pass takes them: row by row, as f32.
//
// From a checkpoint, or from a folder of shards (shard_weights.cpp).
// Ownership: rows are decoded from mapped files that the object owns; a PlainMatrix refers to it.
// Thread rules: const members from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/config/tensor_rules.h"
#include "model/weight_source.h"

namespace kvtide {

struct PlainMatrix {
  std::int64_t rows = 0, columns = 0;
  std::function<void(std::int64_t index, float* out)> row;
};

class PlainWeights {
 public:
  virtual ~PlainWeights() = default;
  virtual const ModelConfig& config() const = 0;
  virtual bool has(Role role, int layer = 0) const = 0;
  // expert.of 0: of no expert. Throws Error(bad_format): missing.
  virtual PlainMatrix matrix(Role role, int layer, std::int64_t rows, std::int64_t columns,
                             const ExpertRows& expert) const = 0;
  // The first n elements of a tensor of any shape; empty: the model has none.
  virtual std::vector<float> vector(Role role, int layer, std::int64_t n) const = 0;
  // How a layer's heads are turned: radians per position of each pair, and the length they are given.
  virtual std::vector<double> frequencies(int layer) const = 0;
  virtual double magnitude(int layer) const = 0;
  virtual double rope_base(int layer) const = 0;  // that the frequencies come from; of rotated layers only
};

// Throws Error(unsupported): layers of a kind that the validator does not know.
void require_known(const ModelConfig& config);

// Of a GGUF file or a Hugging Face folder; context: as ModelOptions::context. Throws Error: what open_checkpoint throws, unsupported (another
// architecture).
std::unique_ptr<PlainWeights> plain_weights(const std::string& path, std::int64_t context = 0);
// Of a folder of shards: what their files hold. Throws Error: what reading a manifest and files throws.
std::unique_ptr<PlainWeights> plain_shard_weights(const std::string& folder);

}  // namespace kvtide
