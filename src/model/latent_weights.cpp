#include "model/latent_weights.h"

#include <utility>

namespace kvtide {
namespace {

// Pairs (2 i, 2 i + 1) of the rotated elements from `first` on, as halves (i, i + pairs).
void add_halves(std::vector<std::int32_t>& order, std::int64_t first, const LatentConfig& latent) {
  for (std::int64_t i = 0; i < latent.rope; ++i) {
    const std::int64_t pairs = latent.rope / 2;
    const std::int64_t within = !latent.interleaved ? i : i < pairs ? 2 * i : 2 * (i - pairs) + 1;
    order.push_back(static_cast<std::int32_t>(first + within));
  }
}

void load_queries(const ModelConfig& config, WeightSource& source, LatentWeights& w) {
  const LatentConfig& latent = *config.latent;
  const std::int64_t head = latent.nope + latent.rope;
  std::vector<std::int32_t> plain, rotated;
  for (std::int64_t h = 0; h < config.heads; ++h) {
    for (std::int64_t i = 0; i < latent.nope; ++i) plain.push_back(static_cast<std::int32_t>(h * head + i));
    add_halves(rotated, h * head + latent.nope, latent);
  }
  const bool low = latent.query_rank > 0;
  if (low) {
    w.query_down = source.matrix(Role::latent_query_down, latent.query_rank, config.width);
    w.query_norm = source.values(Role::latent_query_norm, {latent.query_rank});
  }
  const Role role = low ? Role::latent_query_up : Role::query;
  const std::int64_t inputs = low ? latent.query_rank : config.width;
  w.query = source.picked_matrix(role, config.heads * head, inputs, std::move(plain));
  w.query_rotated = source.picked_matrix(role, config.heads * head, inputs, std::move(rotated));
}

// Files have K and V of all heads in one, head by head, or K transposed and V apart.
void load_absorbed(const ModelConfig& config, WeightSource& source, LatentWeights& w) {
  const LatentConfig& latent = *config.latent;
  const std::int64_t heads = config.heads, both = latent.nope + latent.value;
  const bool together = source.has(Role::latent_up);
  for (std::int64_t h = 0; h < heads; ++h) {
    if (together) {
      const std::vector<std::int64_t> shape = {heads * both, latent.rank};
      w.absorb.push_back(
          source.part_matrix(Role::latent_up, {shape, h * both, latent.rank, latent.nope, true}));
      w.expand.push_back(source.part_matrix(
          Role::latent_up, {shape, h * both + latent.nope, latent.value, latent.rank, false}));
    } else {
      w.absorb.push_back(source.part_matrix(
          Role::latent_key_up,
          {{heads, latent.rank, latent.nope}, h * latent.rank, latent.rank, latent.nope, false}));
      w.expand.push_back(source.part_matrix(
          Role::latent_value_up,
          {{heads, latent.value, latent.rank}, h * latent.value, latent.value, latent.rank, false}));
    }
  }
}

}  // namespace

LatentWeights load_latent(const ModelConfig& config, WeightSource& source) {
  const LatentConfig& latent = *config.latent;
  LatentWeights w;
  load_queries(config, source, w);
  std::vector<std::int32_t> order;
  add_halves(order, latent.rank, latent);
  for (std::int64_t i = 0; i < latent.rank; ++i) order.push_back(static_cast<std::int32_t>(i));
  w.row = source.picked_matrix(Role::latent_down, latent.rank + latent.rope, config.width, std::move(order));
  w.norm = source.values(Role::latent_norm, {latent.rank});
  load_absorbed(config, source, w);
  return w;
}

}  // namespace kvtide
