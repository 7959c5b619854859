// control.h: the memories that a policy is held against: everything kept, and a plain window of equal bytes.
//
// Pure functions of a model, options and a length: nothing is read. Options that are about speed and
// arithmetic (threads, kernels, exact) are taken over from the policy, so that only the memory differs.
#pragma once

#include <cstdint>
#include <optional>

#include "kvtide/session.h"

namespace kvtide {

// The full f16 cache over `tokens` tokens. Longer texts than the model was trained for have no such truth:
// then 4 sinks and the newest positions, together as many as it was trained for.
SessionOptions full_cache(const Model& model, const SessionOptions& like, std::int64_t tokens);

// The type in which a memory like this keeps old rows: q8_0 in a procedural one, unless it says otherwise or
// heads do not allow it; the type of its keys in others.
ElementType old_rows_type(const Model& model, const SessionOptions& like);

// The most bytes of KV that a session with these options holds while it reads `tokens` tokens.
std::int64_t most_kv_bytes(const Model& model, const SessionOptions& options, std::int64_t tokens);

// 4 sinks and the longest window that `bytes` pay for, in the type in which `like` keeps old rows (q8_0,
// unless it says otherwise or heads do not allow it): the choice that costs nothing to think of. At least one
// block of 16 positions; at most what the model was trained for, where a longer window would only be worse;
// at most `tokens`.
SessionOptions window_of_bytes(const Model& model, const SessionOptions& like, std::int64_t bytes,
                               std::int64_t tokens);
// The same for as many bytes as a session with these options holds at most: the plain alternative to it.
SessionOptions window_beside(const Model& model, const SessionOptions& options, std::int64_t tokens);

}  // namespace kvtide
