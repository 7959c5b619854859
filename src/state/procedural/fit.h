// fit.h: biases and values of the summaries of one block, by least squares over reference queries.
//
// With S_ip the score of reference i and pivot p without the pivot's bias, n_p the mass assigned to p, lb_i
// the block's log mass and w_i its share in the whole softmax:
//   biases  ln n_p + ln u, where u minimises |A u - t|^2 + mu |u - 1|^2, A_ip = w_i e^(S_ip + ln n_p - lb_i),
//           t_i = w_i x (share of the rows that are not kept), among the u whose biases lie in [-3, 7]; where
//           ln n_p itself lies outside, as far as that
//   values  C = mean + (X^T X + lambda)^-1 X^T (O - X_all [V_exact; mean]), X the softmax over kept rows,
//           rows weighted with w
// Every fifth reference takes no part in the fit and judges it: biases and values are kept together, and only
// if what they add to the whole output, |share' x output' - w_i x output|^2, is nearer than with ln n_p and
// the mean.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/dense.h"
#include "state/procedural/block_rows.h"

namespace kvtide {

struct FitInput {
  const BlockRows& block;
  const ReferenceRows& references;
  const std::vector<std::int64_t>& exact;   // rows that stay as they are, ascending
  const std::vector<std::int64_t>& rest;    // the other rows
  const std::vector<std::int64_t>& pivots;  // of these, the keys of the summaries
  std::vector<std::int64_t> assigned;       // for every row of `rest` the index of its pivot
  const float* shares;                      // [references][stride], softmax
  std::int64_t stride;
  const std::vector<float>& log_mass;  // [references]
  const std::vector<float>& weight;    // [references]
  const std::vector<float>& outputs;   // [references][padded_dim]
  bool fit;                            // false: ln n and means
};

struct Fitted {
  std::vector<float> bias;    // [pivots]
  std::vector<float> values;  // [pivots][padded_dim]
  float log_mass_error = 0.0f;
  bool rejected = false;
};

Fitted fit_summaries(const DenseRow& kernels, const FitInput& in);

}  // namespace kvtide
