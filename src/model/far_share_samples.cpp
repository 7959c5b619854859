#include "model/far_share_samples.h"

#include <algorithm>
#include <utility>

#include "kernels/far_share.h"
#include "state/auto_attention.h"

namespace kvtide {

FarShareSamples::FarShareSamples(std::vector<std::int64_t> tokens)
    : tokens_(std::move(tokens)), sums_(tokens_.size(), 0.0) {}

void FarShareSamples::add(ThreadPool& pool, const AttendRow& kernels, const AttendInput& input,
                          std::int64_t near) {
  const auto kv_heads = static_cast<std::size_t>(input.shape.kv_heads);
  std::vector<std::vector<float>> found(tokens_.size() * kv_heads);
  pool.run(static_cast<std::int64_t>(found.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i), head = at % kv_heads;
    found[at] = far_shares(kernels, input, tokens_[at / kv_heads], static_cast<int>(head), near);
  });
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const float share : found[i]) sums_[i / kv_heads] += static_cast<double>(share);
  heads_ += input.shape.heads;
}

std::vector<std::int32_t> FarShareSamples::shares() const {
  std::vector<std::int32_t> shares;
  for (const double sum : sums_) {
    const double share = sum / static_cast<double>(heads_);
    shares.push_back(share > 0.0 ? static_cast<std::int32_t>(std::min(share, 1.0) * kWholeShare) : 0);
  }
  return shares;
}

}  // namespace kvtide
