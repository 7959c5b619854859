// weights.h: the tensors of a model, checked and laid out for the kernels.
//
// Matrices that have a panel form are repacked (threads share the work, the file's pages are let go one
// matrix after another, so that the peak stays near one copy), or were packed before and are mapped from a file
// (formats/packed_file.h). Other matrices are used where they lie in the checkpoint's own file.
// Ownership: Weights owns the panels and refers to the Checkpoint it was loaded from, which must outlive it
// while mapped_bytes() is not 0.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/arena.h"
#include "base/thread_pool.h"
#include "formats/packed_file.h"
#include "kernels/matmul.h"
#include "model/cca_weights.h"
#include "model/checkpoint.h"
#include "model/delta_net.h"
#include "model/experts.h"
#include "model/latent_weights.h"
#include "model/layer_inputs_weights.h"
#include "model/residual.h"
#include "model/short_conv.h"
#include "model/state_space.h"

namespace kvtide {

struct LayerWeights {
  std::vector<float> attention_norm, feed_forward_norm;            // [width]
  std::vector<float> attention_post_norm, feed_forward_post_norm;  // [width], where the architecture has them
  std::vector<float> query_norm, key_norm;                         // [head_dim], likewise
  std::vector<float> value_norm;                                   // ones, likewise
  std::vector<float> attention_norm_bias, feed_forward_norm_bias;  // [width], of layer norms
  std::vector<float> query_bias, key_bias, value_bias, output_bias;  // empty: none
  std::vector<float> sinks;                                          // [heads], of attention that has them
  std::vector<float> up_bias, down_bias;                             // likewise
  WeightMatrix query, key, value, output;  // no key and value: rows of another layer; no value: keys as well
  WeightMatrix query_gate;                 // [heads * head_dim][width], where attention is gated
  WeightMatrix gate, up, down;             // gate: only where the feed-forward is gated
  std::optional<CcaWeights> cca;           // then `value` makes the current half of the values
  std::optional<ShortConvWeights> conv;    // instead of query, key, value and output
  std::optional<LatentWeights> latent;     // instead of query, key and value
  std::optional<DeltaNetWeights> delta;    // likewise
  std::optional<StateSpaceWeights> space;
  std::optional<ExpertsWeights> experts;   // instead of gate, up and down
  std::optional<LayerInputWeights> input;  // what the token gives to this layer
  std::vector<float> experts_norm, experts_post_norm,
      beside_post_norm;  // [width], of experts beside gate, up and down
  float scale = 1.0f;    // of the stream behind the layer
  ResidualScale attention_scale, feed_forward_scale;
};

class Weights {
 public:
  // Throws Error: bad_format (a tensor that is missing or has another shape), numeric (NaN or infinity in a
  // tensor).
  Weights(const Checkpoint& checkpoint, ThreadPool& pool);
  // Of matrices that were packed before. Whether they are this checkpoint's is the caller's to know; also throws
  // Error(bad_format) when they are others than it would pack.
  Weights(const Checkpoint& checkpoint, ThreadPool& pool, PackedFile packed);
  // Packs every matrix into a file, and keeps none.
  static void pack(const Checkpoint& checkpoint, ThreadPool& pool, PackedWriter& writer);

  const WeightMatrix& embedding() const { return embedding_; }
  const WeightMatrix& positions() const { return positions_; }  // [context][width], where they are learned
  const WeightMatrix& head() const {
    return head_;
  }  // the output matrix; the embedding when the file has none
  const std::vector<float>& output_norm() const { return output_norm_; }
  const std::vector<float>& output_norm_bias() const { return output_norm_bias_; }
  // Of a scaled residual stream: the embedding becomes (embedding + bias) * scale; else empty.
  const std::vector<float>& input_scale() const { return input_scale_; }
  const std::vector<float>& input_bias() const { return input_bias_; }
  const std::optional<LayerInputsWeights>& layer_inputs() const { return layer_inputs_; }
  const LayerWeights& layer(int i) const { return layers_[static_cast<std::size_t>(i)]; }

  // Pages of a file of packed weights leave the resident set until they are touched.
  void release_pages() const noexcept {
    if (packed_) packed_->release();
  }

  std::int64_t packed_bytes() const { return packed_bytes_; }  // in memory of our own
  std::int64_t shared_bytes() const { return shared_bytes_; }  // packed, in the pages of a file
  std::int64_t mapped_bytes() const { return mapped_bytes_; }  // used where they lie in the checkpoint

 private:
  friend class WeightLoader;
  Weights() = default;
  WeightMatrix embedding_, positions_, head_;
  std::vector<float> output_norm_, output_norm_bias_, input_scale_, input_bias_;
  std::optional<LayerInputsWeights> layer_inputs_;
  std::vector<LayerWeights> layers_;
  Arena panels_;
  std::optional<PackedFile> packed_;
  std::deque<std::vector<std::int32_t>> orders_;
  std::vector<std::vector<float>> scales_;
  std::int64_t packed_bytes_ = 0, shared_bytes_ = 0, mapped_bytes_ = 0;
};

}  // namespace kvtide
