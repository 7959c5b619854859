// auto_attention.h: an attention size that follows what the model looks at, as a pure function of measured
// samples.
//
// Every 32nd query is a sample: the share of its attention that falls on the far half of what it sees, in
// parts per million, averaged over the heads of the layers that keep everything. Every 256 positions the mean
// of the last eight samples decides. When much attention falls on the far half, tokens beyond it would be
// looked at, too: the size doubles. When next to none does, it halves. Samples are whole numbers and
// decisions are taken at fixed positions, so chunks, threads, forks, snapshots and truncations change
// nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "kvtide/transition.h"

namespace kvtide {

inline constexpr std::int64_t kSampleEvery = 32, kDecideEvery = 256;  // positions
inline constexpr std::int32_t kWholeShare = 1000000;
// Shares of the far half above which the size doubles and below which it halves. Text of two real models lies
// between: docs/attention_sizes.md.
inline constexpr std::int32_t kExpandAbove = 150000, kContractBelow = 80000;

struct AutoAttentionLog {
  AutoAttention range;
  std::int64_t first = 0;  // number of the first sample; sample n is the query at position 32 * n + 31
  std::vector<std::int32_t> samples;  // far shares, in parts per million
  friend bool operator==(const AutoAttentionLog&, const AutoAttentionLog&) = default;
};

// One that begins when `position` tokens were read.
AutoAttentionLog begin_log(const AutoAttention& range, Pos position);

// Samples that have been taken when `position` tokens were read since the log began.
std::int64_t samples_at(const AutoAttentionLog& log, Pos position);

// Every change so far, in order; and the size now.
std::vector<AttentionChange> attention_changes(const AutoAttentionLog& log);
std::int64_t attention_size(const AutoAttentionLog& log);

// Tokens until the size may change; a step does not cross that position.
std::int64_t until_decision(Pos position);

// Cut to what a rolling memory holds: nothing lies beyond its window.
AutoAttention within(AutoAttention range, const Rolling& rolling);

// Throws Error(invalid_argument) unless 1 <= smallest <= largest.
void check(const AutoAttention& range);

}  // namespace kvtide
