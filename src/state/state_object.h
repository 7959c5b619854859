// state_object.h: what a public State (kvtide/state.h) holds: a KvState and what goes along with it.
//
// The engine's sessions work on the KvState directly and keep the tokens and logits beside it up to date.
// Ownership and thread rules: those of State. Invariant: extras.tokens is as long as kv.position(), or empty.
#pragma once

#include "kvtide/state.h"
#include "state/snapshot.h"
#include "state/state.h"
#include "tensor/element_type.h"

namespace kvtide {

struct State::Impl {
  KvState kv;
  SnapshotExtras extras;
};

// What was loaded from `path`. Throws Error(bad_format): it has tokens for other positions than its own.
State state_of(Snapshot snapshot, const std::string& path);

// The spec that a shape stands for; steps of one token, which KvState::set_max_step changes.
KvSpec spec_of(const StateShape& shape);

// Tokens and logits follow a transition of the KvState that they belong to.
void follow(SnapshotExtras& extras, const Transition& transition, const TransitionRecord& record);

}  // namespace kvtide
