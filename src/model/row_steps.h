// row_steps.h: the steps of a forward pass that look at one row of activations at a time: embedding, norms, matrix
// products, residual sums. The blocks of layers are made of them.
//
// Every function works on rows [skip, count) of the chunk, in the arrays of the Workspace. A row's result depends on
// that row alone.
// Ownership: refers to the context and the workspace.
// Thread rules: one caller; the rows are spread over the pool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "kvtide/types.h"
#include "model/decoder_context.h"
#include "model/pass_timer.h"
#include "model/workspace.h"

namespace kvtide {

class RowSteps {
 public:
  RowSteps(const DecoderContext& context, Workspace& workspace)
      : config_(context.config),
        weights_(context.weights),
        rows_(context.kernels.elementwise),
        context_(context),
        ws_(workspace) {}

  // x = embedding of the tokens, from row `begin` on. Throws Error: invalid_argument (a token outside the vocabulary),
  // context_full.
  void embed(std::span<const TokenId> tokens, Pos first, std::int64_t begin);
  // y = norm of x; x itself where the architecture has no norm there.
  void norm(const float* x, const std::vector<float>& weight, const std::vector<float>& bias,
            std::int64_t first, std::int64_t last, float* y);
  // x, rows in f32, times the weights of every job; in 8 bits where weights take them so, unless the pass is exact.
  void multiply(Activations x, std::span<const MatmulJob> jobs, double PassTimes::*part = &PassTimes::matmul);
  // normed = input [count][k] times the weight matrix.
  void project(const WeightMatrix& w, const float* input, std::int64_t k, std::int64_t skip,
               std::int64_t count);
  // x += normed, with what the architecture does to it before.
  void add_residual(const std::vector<float>& bias, const std::vector<float>& post_norm,
                    const ResidualScale& scale, std::int64_t skip, std::int64_t count);

  // In place: one head of a row, or all of them together where the weight is as wide.
  void norm_head(float* head, const std::vector<float>& weight) const {
    if (!weight.empty())
      rows_.rms_norm(head, weight.data(), static_cast<std::int64_t>(weight.size()), config_.norm_epsilon,
                     head);
  }
  // Of one head of token t of the chunk, in place.
  void rotate(float* head, std::size_t rope, std::int64_t t) const {
    const std::int64_t pairs = ws_.ropes_[rope].pairs();
    rows_.rope(head, ws_.cosine_[rope] + t * pairs, ws_.sine_[rope] + t * pairs, pairs);
  }

 private:
  const ModelConfig& config_;
  const Weights& weights_;
  const ElementwiseRow& rows_;
  const DecoderContext& context_;
  Workspace& ws_;
};

}  // namespace kvtide
