// decoder.h: the forward pass: tokens in, normed hidden rows out, keys and values into the state on the way.
//
// One pass over the layers that reads top to bottom; architectures differ only in what ModelConfig says.
// The result of a token depends on the tokens before it and on nothing else: not on the chunk it travels in,
// not on the number of threads (docs/architecture.md, idea 5).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/cca.h"
#include "model/config/config.h"
#include "model/rope_table.h"
#include "model/weights.h"
#include "state/state.h"

namespace kvtide {

class Shadow;
struct PassTimes;

// Everything a pass needs beside the state and the tokens.
struct DecoderContext {
  const ModelConfig& config;
  const Weights& weights;
  const Kernels& kernels;
  ThreadPool& pool;
  // Told the residual stream [rows][width] of the step behind the attention of every layer; may be empty.
  std::function<void(int layer, std::span<const float>)> on_residual = {};
  bool exact = false;          // f32 activations instead of 8-bit ones: changes results
  Shadow* shadow = nullptr;    // compares attention with what it would be over everything; changes no result
  PassTimes* times = nullptr;  // takes the times of passes; nullptr: nobody asks
  // Shown the residual stream [rows][width] before every layer and, as one layer more than there are, behind
  // the last; it may put another in its place, so that layers can be judged one by one. May be empty.
  std::function<void(int layer, std::span<float>)> on_layer = {};
};

// Scratch memory for chunks of up to `max_tokens` tokens. Pages are taken when first used.
class Workspace {
 public:
  Workspace(const ModelConfig& config, std::int64_t max_tokens);
  std::int64_t max_tokens() const { return max_tokens_; }
  std::int64_t bytes() const;  // of the pages used so far

 private:
  friend class ForwardPass;
  std::int64_t max_tokens_;
  std::int64_t most_tokens_ = 0;  // of any pass so far
  Buffer memory_;
  float *x_, *normed_, *q_, *k_, *v_, *mixed_, *gate_, *up_;  // [max_tokens][width | heads * head_dim | ...]
  std::vector<float*> cosine_, sine_;                         // per rope: [max_tokens][pairs]
  std::vector<RopeTable> ropes_;
  CcaScratch cca_{};          // of models that convolve queries and keys
  ExpertsScratch experts_{};  // of models with experts
  std::int8_t* quants_;
  float *steps_, *step_sums_;
  std::int32_t* sums16_;
};

// Appends `tokens` (at most the workspace's max_tokens) to the state and commits the step. The last `wanted`
// hidden rows come back, after the final norm: [wanted][width] inside the workspace, valid until its next
// use. Throws Error: context_full, invalid_argument (a token id outside the vocabulary), numeric (the
// activations are no longer finite). After an error the state is as it was.
std::span<const float> forward(const DecoderContext& context, Workspace& workspace, KvState& state,
                               std::span<const TokenId> tokens, std::int64_t wanted);

// logits[rows][vocab] of `rows` normed hidden rows.
void logits(const DecoderContext& context, Workspace& workspace, const float* hidden, std::int64_t rows,
            float* out);

}  // namespace kvtide
