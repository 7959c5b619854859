// memory_event.h: something that happened to the KV memory during a run, as the report shows it.
//
// Nothing is dropped in silence: what is evicted, read again, resized, loaded or saved becomes an event.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "kvtide/transition.h"

namespace kvtide {

struct MemoryEvent {
  std::string
      kind;  // "refill", "rolling", "procedural", "adapt", "load", "save", or the name of a transition
  Pos position = 0;                                           // of the next token when it happened
  std::vector<std::pair<std::string, std::int64_t>> numbers;  // in the order in which they are shown
  double milliseconds = 0.0;
};

MemoryEvent event_of(const TransitionRecord& record);
MemoryEvent event_of(const AttentionChange& change);

std::string event_text(const MemoryEvent& event);  // one line
Json event_json(const MemoryEvent& event);         // {kind, position, numbers ..., ms}

}  // namespace kvtide
