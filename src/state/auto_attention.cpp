#include "state/auto_attention.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kSamples = kDecideEvery / kSampleEvery;  // of one decision

template <class Action>
void each_change(const AutoAttentionLog& log, Action action) {
  std::int64_t size = log.range.smallest;
  const auto end = log.first + static_cast<std::int64_t>(log.samples.size());
  for (std::int64_t n = (log.first + kSamples - 1) / kSamples * kSamples; n + kSamples <= end;
       n += kSamples) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < kSamples; ++i)
      sum += log.samples[static_cast<std::size_t>(n - log.first + i)];
    const Pos position = (n + kSamples) * kSampleEvery;
    const std::int64_t share = sum / kSamples, before = size;
    if (position < size) continue;  // everything is seen: nothing lies beyond, and the far half is not full
    if (share > kExpandAbove) size = std::min(size * 2, log.range.largest);
    if (share < kContractBelow) size = std::max(size / 2, log.range.smallest);
    if (size != before)
      action(AttentionChange{position, before, size, static_cast<double>(share) / kWholeShare});
  }
}

}  // namespace

void check(const AutoAttention& range) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (range.smallest < 1 || range.smallest > range.largest || range.largest > kMost)
    throw Error(ErrorCode::invalid_argument,
                cat("an attention size that adapts itself needs 1 <= smallest <= largest, not ",
                    range.smallest, " and ", range.largest));
}

AutoAttention within(AutoAttention range, const Rolling& rolling) {
  range.largest = std::min(range.largest, rolling.window);
  range.smallest = std::min(range.smallest, range.largest);
  return range;
}

AutoAttentionLog begin_log(const AutoAttention& range, Pos position) {
  check(range);
  return {range, position / kSampleEvery, {}};
}

std::int64_t samples_at(const AutoAttentionLog& log, Pos position) {
  return std::max<std::int64_t>(0, position / kSampleEvery - log.first);
}

std::vector<AttentionChange> attention_changes(const AutoAttentionLog& log) {
  std::vector<AttentionChange> changes;
  each_change(log, [&](const AttentionChange& change) { changes.push_back(change); });
  return changes;
}

std::int64_t attention_size(const AutoAttentionLog& log) {
  std::int64_t size = log.range.smallest;
  each_change(log, [&](const AttentionChange& change) { size = change.size; });
  return size;
}

std::int64_t until_decision(Pos position) { return kDecideEvery - position % kDecideEvery; }

}  // namespace kvtide
