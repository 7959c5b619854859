// latent_weights.h: the weights of latent attention (latent.h has the formulas).
// Ownership: refer to the panels of Weights.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/config.h"
#include "model/weight_source.h"

namespace kvtide {

struct LatentWeights {
  WeightMatrix query_down;            // [query_rank][width], where there is one
  std::vector<float> query_norm;      // [query_rank]
  WeightMatrix query, query_rotated;  // [heads * nope][query_rank or width], [heads * rope][the same]
  WeightMatrix row;                   // [rope + rank][width]
  std::vector<float> norm;            // [rank]
  std::vector<WeightMatrix> absorb;   // per head [rank][nope]
  std::vector<WeightMatrix> expand;   // per head [value][rank]
};

LatentWeights load_latent(const ModelConfig& config, WeightSource& source);

}  // namespace kvtide
