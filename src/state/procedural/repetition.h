// repetition.h: how much attention the rows of a block get when the model reads the block once more.
//
// A row counts as much as the largest share of a softmax that any query of its KV head gives it. It is the ranking of
// KVzip (arXiv 2505.23416), block by block: what a model looks up to repeat a text is what a question may ask for.
// Ownership: owns its numbers. Thread rules: one caller at a time; work is spread over the pool.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/attend_input.h"
#include "kernels/kernels.h"
#include "kvtide/types.h"

namespace kvtide {

class Repetition {
 public:
  Repetition(const PosRange& block, std::size_t layers) : block_(block), layers_(layers) {}
  const PosRange& block() const { return block_; }

  // One layer of a step that reads tokens of the block again (KvState::begin_again): what attend() was called with,
  // exact rows of the block included, and what it said of every query: log_mass [tokens][heads].
  void look(ThreadPool& pool, const Kernels& kernels, int layer, const AttendInput& input,
            const float* log_mass);
  // The logarithm of the largest share of every row of a head, in nats; empty: the layer was not looked at.
  std::span<const float> shares(int layer, int kv_head) const;

 private:
  PosRange block_;
  std::vector<std::vector<float>> layers_;  // of each [kv_heads][rows of the block]
};

}  // namespace kvtide
