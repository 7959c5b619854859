// far_share_samples.h: how far the sampled tokens of one step look, gathered over its layers.
//
// Thread rules: add() spreads over the pool; one caller at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/attend.h"

namespace kvtide {

class FarShareSamples {
 public:
  // tokens: of the step, as KvState::Step::sampled() gives them.
  explicit FarShareSamples(std::vector<std::int64_t> tokens = {});
  bool empty() const { return tokens_.empty(); }
  // One layer: arguments as in attend(), for the whole step; rows `near` positions away or further are far.
  void add(ThreadPool& pool, const AttendRow& kernels, const AttendShape& shape, std::int64_t near,
           std::span<const ViewPoint> views, std::span<const float* const> q,
           std::span<const std::vector<Span>> spans);
  // Per token, the mean over all heads so far, in parts per million.
  std::vector<std::int32_t> shares() const;

 private:
  std::vector<std::int64_t> tokens_;
  std::vector<double> sums_;  // per token, over heads in a fixed order
  std::int64_t heads_ = 0;
};

}  // namespace kvtide
