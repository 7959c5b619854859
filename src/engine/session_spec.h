// session_spec.h: what a session's memory is made from: pure functions of a model's shape and the options.
//
// A session builds its memory from these, and a plan for a model that is not here asks the same questions, so
// that the two cannot disagree.
#pragma once

#include "kvtide/session.h"
#include "model/config/config.h"
#include "state/spec/spec.h"

namespace kvtide {

// The options with every default filled in, a budget's picks included. Throws Error(invalid_argument) for
// options that contradict one another or do not fit the model.
SessionOptions completed(const ModelConfig& config, SessionOptions options);

// Whether rows can be ranked by repetition: what is read again leaves a layer before the next one begins
// (KvState::begin_again), so no layer may look at the rows of another.
bool can_repeat(const ModelConfig& config);

// The memory of a session with these options (completed).
KvSpec kv_spec(const ModelConfig& config, const SessionOptions& options);

}  // namespace kvtide
