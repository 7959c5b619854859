#include "model/latent.h"

#include <algorithm>

#include "base/as_size.h"
#include "model/for_rows.h"

namespace kvtide {

void project_latents(const DecoderContext& context, RowSteps& steps, const LatentWeights& weights,
                     const float* normed, std::int64_t count, const LatentScratch& scratch,
                     const LatentRows& rows) {
  const ModelConfig& config = context.config;
  const LatentConfig& latent = *config.latent;
  const ElementwiseRow& row_kernels = context.kernels.elementwise;
  const std::int64_t heads = config.heads, head_dim = config.head_dim;
  const bool low = latent.query_rank > 0;
  const MatmulJob first[] = {{&weights.row, rows.k, head_dim},
                             {&weights.query_down, scratch.query_down, latent.query_rank}};
  const MatmulJob queries[] = {{&weights.query, scratch.query, heads * latent.nope},
                               {&weights.query_rotated, scratch.query_rotated, heads * latent.rope}};
  steps.multiply({count, config.width, normed}, std::span(first, low ? 2 : 1));
  if (low)
    for_rows(context.pool, 0, count, [&](std::int64_t t) {
      float* row = scratch.query_down + t * latent.query_rank;
      row_kernels.rms_norm(row, weights.query_norm.data(), latent.query_rank, latent.norm_epsilon, row);
    });
  steps.multiply({count, low ? latent.query_rank : config.width, low ? scratch.query_down : normed}, queries);
  for_rows(context.pool, 0, count, [&](std::int64_t t) {
    float *key = rows.k + t * head_dim, *value = rows.v + t * head_dim;
    row_kernels.rms_norm(key + latent.rope, weights.norm.data(), latent.rank, latent.norm_epsilon,
                         key + latent.rope);
    std::fill_n(value, latent.rope, 0.0f);
    std::copy_n(key + latent.rope, latent.rank, value + latent.rope);
    for (std::int64_t h = 0; h < heads; ++h)
      std::copy_n(scratch.query_rotated + (t * heads + h) * latent.rope, latent.rope,
                  rows.q + (t * heads + h) * head_dim);
  });
  for (std::int64_t h = 0; h < heads; ++h) {
    for_rows(context.pool, 0, count, [&](std::int64_t t) {
      std::copy_n(scratch.query + (t * heads + h) * latent.nope, latent.nope, scratch.head + t * latent.nope);
    });
    const MatmulJob job{&weights.absorb[as_size(h)], rows.q + h * head_dim + latent.rope, heads * head_dim};
    steps.multiply({count, latent.nope, scratch.head}, {&job, 1});
  }
}

void expand_latents(const DecoderContext& context, RowSteps& steps, const LatentWeights& weights,
                    const float* mixed, std::int64_t skip, std::int64_t count, const LatentScratch& scratch) {
  const ModelConfig& config = context.config;
  const LatentConfig& latent = *config.latent;
  const std::int64_t heads = config.heads;
  for (std::int64_t h = 0; h < heads; ++h) {
    for_rows(context.pool, skip, count, [&](std::int64_t t) {
      std::copy_n(mixed + (t * heads + h) * config.head_dim + latent.rope, latent.rank,
                  scratch.head + t * latent.rank);
    });
    const MatmulJob job{&weights.expand[as_size(h)], scratch.values + (skip * heads + h) * latent.value,
                        heads * latent.value};
    steps.multiply({count - skip, latent.rank, scratch.head + skip * latent.rank}, {&job, 1});
  }
}

}  // namespace kvtide
