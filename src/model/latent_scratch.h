// latent_scratch.h: scratch memory of latent attention (latent.h).
#pragma once

namespace kvtide {

// Rows of a step of n tokens, f32.
struct LatentScratch {
  float* query_down;             // [n][query_rank]
  float *query, *query_rotated;  // [n][heads * nope], [n][heads * rope]
  float* head;                   // [n][max(nope, rank)]: of one head
  float* values;                 // [n][heads * value]
};

}  // namespace kvtide
