// workspace.h: scratch memory of forward passes.
//
// Ownership: owns its memory; pages are taken when first used.
// Thread rules: one pass at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "kernels/quant_rows.h"
#include "model/cca.h"
#include "model/config/config.h"
#include "model/delta_net.h"
#include "model/experts.h"
#include "model/latent_scratch.h"
#include "model/layer_inputs_scratch.h"
#include "model/rope_table.h"
#include "model/short_conv.h"
#include "model/state_space.h"

namespace kvtide {

// For chunks of up to `max_step` tokens.
class Workspace {
 public:
  Workspace(const ModelConfig& config, std::int64_t max_step);
  std::int64_t max_step() const { return max_step_; }
  std::int64_t bytes() const;  // of the pages used so far

 private:
  friend class RowSteps;
  friend class ForwardPass;
  friend class AttentionBlock;
  friend class RecurrenceBlock;
  friend class ShortConvBlock;
  friend class DeltaNetBlock;
  friend class StateSpaceBlock;
  friend class FeedForwardBlock;
  friend class ExpertsBlock;
  friend class ExpertsBesideBlock;
  friend class LayerEndBlock;
  std::int64_t max_step_;
  std::int64_t most_tokens_ = 0;  // of any pass so far
  Buffer memory_;
  float *x_, *normed_, *q_, *k_, *v_, *mixed_, *gate_, *up_;  // [max_step][width | heads * head_dim | ...]
  std::vector<float*> cosine_, sine_;                         // per rope: [max_step][pairs]
  std::vector<RopeTable> ropes_;
  CcaScratch cca_{};                   // of models that convolve queries and keys
  float* query_gate_ = nullptr;        // [max_step][heads * head_dim], of models whose attention is gated
  ShortConvScratch conv_{};            // of models with short convolutions
  LatentScratch latent_{};             // of models that keep latents
  DeltaNetScratch delta_{};            // of models with gated delta nets
  StateSpaceScratch space_{};          // of models with Mamba-2 layers
  LayerInputsScratch layer_inputs_{};  // of models whose tokens give numbers to every layer
  BesideScratch beside_{};             // of models with experts beside a feed-forward
  ExpertsScratch experts_{};           // of models with experts
  QuantRow quants_;                    // of the first row
};

}  // namespace kvtide
