// far_share_samples.h: the far shares (kernels/far_share.h) of the sampled tokens of one step, averaged over
// its layers.
//
// Thread rules: add() spreads over the pool; one caller at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/attend_input.h"

namespace kvtide {

class FarShareSamples {
 public:
  // tokens: of the step, as KvState::Step::sampled() gives them.
  explicit FarShareSamples(std::vector<std::int64_t> tokens = {});
  bool empty() const { return tokens_.empty(); }
  // One layer, for the whole step; rows `near` positions away or further are far.
  void add(ThreadPool& pool, const AttendRow& kernels, const AttendInput& input, std::int64_t near);
  // Per token, the mean over all heads so far, in parts per million.
  std::vector<std::int32_t> shares() const;

 private:
  std::vector<std::int64_t> tokens_;
  std::vector<double> sums_;  // per token, over heads in a fixed order
  std::int64_t heads_ = 0;
};

}  // namespace kvtide
