// far_share.h: how much of a query's attention falls on rows that are far away. An attention size that adapts
// itself grows and shrinks by this share (state/auto_attention.h).
//
// Thread rules: a pure function of its arguments. The shares are the same bits for every chunking and kernel
// table, like attention itself: the same tiles are folded in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attend_input.h"

namespace kvtide {

// Token `token` of the chunk, the query heads of one KV head: the share of the softmax's mass on visible rows
// that stand `near` positions away or further, 0 to 1 each. Sinks and rows without a position are never far.
std::vector<float> far_shares(const AttendRow& kernels, const AttendInput& input, std::int64_t token,
                              int kv_head, std::int64_t near);

}  // namespace kvtide
