// sharded.h: the shards of a folder driven as one model, through nothing but what shard.h gives to any host:
// activations, rope tables and masks in, activations out.
//
// Ownership: owns the shards, one state for each attention shard (one sequence), and the tokenizer.
// Thread rules: one caller at a time.
// Invariants: opening checks every file before the first token; all states are at the same position between
// two calls; a call that throws has changed nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "kvtide/shard.h"
#include "kvtide/tokenizer.h"

namespace kvtide {

struct ShardSeconds {  // spent in so many calls
  std::int64_t calls = 0;
  double embedding = 0.0, head = 0.0;
  std::vector<double> attention, mlp;  // per layer; mlp: also that of moe shards
  double all_attention() const { return std::accumulate(attention.begin(), attention.end(), 0.0); }
  double all_mlp() const { return std::accumulate(mlp.begin(), mlp.end(), 0.0); }
};
// What was spent since `before`.
ShardSeconds operator-(ShardSeconds now, const ShardSeconds& before);

class ShardedModel {
 public:
  // Throws what ShardFolder, its open() and reading a tokenizer throw.
  explicit ShardedModel(const std::string& folder, const ShardOptions& options = {});

  const ShardFolder& folder() const { return folder_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  std::int64_t weights_bytes() const;
  std::int64_t state_bytes() const;  // of all states, written or not
  const ShardSeconds& seconds() const { return seconds_; }

  Pos position() const { return position_; }
  void truncate(Pos n);  // throws what ShardState::truncate throws; all states are then as they were

  // Appends 1 to t_max tokens. The logits of the last `wanted` of them, [wanted][vocabulary], valid until the
  // next call; 0: the heads are not run. Throws Error: invalid_argument, context_full, numeric.
  std::span<const float> read(std::span<const TokenId> tokens, std::int64_t wanted);

 private:
  struct Layer {
    Shard attention, feed_forward;  // the latter an mlp or a moe shard
    ShardState state;
  };
  std::vector<float> run_layers(std::span<const TokenId> tokens);

  ShardFolder folder_;
  Tokenizer tokenizer_;
  std::vector<Shard> embedding_;  // one
  std::vector<Layer> layers_;
  std::vector<Shard> heads_;  // in the order of their tokens
  Pos position_ = 0;
  std::vector<float> logits_;
  ShardSeconds seconds_;
};

}  // namespace kvtide
