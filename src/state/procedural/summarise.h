// summarise.h: which rows of a block stay, and which summaries stand for the others: one (layer, KV head).
//
// For a query q over rows (k_j, v_j): mass Z = sum_j e^(q.k_j s), output o = sum_j e^(q.k_j s) v_j / Z. Rows
// that match both log Z and o for the queries to come can stand beside anything else in one softmax.
// Queries to come are guessed: recent ones, turned to positions in the future. Source of the fit: attention
// matching (compaction by non-negative least squares for masses and ridge regression for values).
// Ownership: works on the caller's rows and holds scratch memory. Thread rules: one Summariser per thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/dense.h"
#include "kvtide/procedural.h"
#include "state/procedural/block_rows.h"

namespace kvtide {

struct SummaryRules {
  std::int64_t exact = 0;      // rows that stay as they are
  std::int64_t summaries = 0;  // rows that stand for the rest
  Summary summary = Summary::fit;
  RowScore score = RowScore::mixed;
  float scale = 0.0f;                         // of q.k
  float weight = 1.0f;                        // of the head, in the scores of rows
  bool scored = true;                         // are scores of exact rows asked for? Otherwise they are 0
  const std::vector<bool>* pinned = nullptr;  // [rows] that stay as they are beside `exact`; nullptr: none
  std::span<const float> repeated = {};       // [rows] what Repetition says of the head; empty: nothing
};

struct KeptRow {
  std::int64_t row = 0;  // of the block, whose key it has
  float bias = 0.0f;
  float count = 1.0f;  // tokens it stands for
  float score = 0.0f;
  std::int64_t value = -1;  // row of `values`, or -1: the block row's own
};

struct Summarised {
  std::vector<KeptRow> kept;    // ascending by row
  std::vector<float> values;    // [summaries][padded_dim]
  float log_mass_error = 0.0f;  // mean over references, weighted with the block's share, nats
  bool rejected = false;        // the fit was no better than ln n on held-out references
  float spread = 0.0f;          // rows that share the block's attention: e^entropy, times its share
};

class Summariser {
 public:
  explicit Summariser(const DenseRow& kernels) : kernels_(kernels) {}

  // counts: tokens that each row stands for [rows].
  Summarised summarise(const BlockRows& block, const std::vector<float>& counts,
                       const ReferenceRows& references, const SummaryRules& rules);
  // All rows, the most telling first.
  std::vector<std::int64_t> ranking(const BlockRows& block, const ReferenceRows& references,
                                    const SummaryRules& rules) {
    attend(block, references, rules.scale);
    return rank_rows(block, rules, static_cast<std::size_t>(block.rows));
  }
  // b_j |v_j - o| of every row: what comparing heads and shedding go by.
  std::vector<float> row_losses(const BlockRows& block, const ReferenceRows& references, float scale);

 private:
  void attend(const BlockRows& block, const ReferenceRows& references, float scale);
  void mix_outputs(const BlockRows& block);
  // All rows, the `first` most telling ones first and in order.
  std::vector<std::int64_t> rank_rows(const BlockRows& block, const SummaryRules& rules,
                                      std::size_t first) const;
  std::vector<std::int64_t> choose_pivots(const BlockRows& block, const std::vector<std::int64_t>& rest,
                                          const SummaryRules& rules) const;
  std::vector<float> distances(const std::vector<std::int64_t>& pivots) const;
  std::vector<std::int64_t> assign(const BlockRows& block, const std::vector<std::int64_t>& rest,
                                   const std::vector<std::int64_t>& pivots, const SummaryRules& rules) const;
  float spread(const BlockRows& block) const;
  std::vector<float> losses_of(const BlockRows& block, const std::vector<std::int64_t>& rows) const;

  float mass_lost(const std::vector<std::int64_t>& rows) const;

  const DenseRow& kernels_;
  // Of the block at hand, [references][padded_rows] unless said otherwise.
  std::int64_t count_ = 0, stride_ = 0;
  std::vector<float> turned_;    // [padded_dim][padded_rows] scaled keys
  std::vector<float> scores_;    // with biases, less the block's log mass
  std::vector<float> shares_;    // softmax
  std::vector<float> log_mass_;  // [references] of the block alone
  std::vector<float> weight_;    // [references] share of the block in the whole softmax
  std::vector<float> outputs_;   // [references][padded_dim] of the block alone
  std::vector<float> squares_;   // [padded_rows] sum of (weight * share)^2
};

}  // namespace kvtide
