// states.h: the states of the prefix caches by number: what they hold, and everything that can be done to a memory.
//
// A request goes on from one by "kv": {"state": N} (memory_fields.h).
#pragma once

#include <memory>

#include "serve/routes/service.h"

namespace kvtide::serve {

void list_states(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void one_state(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void drop_state(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

// POST /states/N/ACTION: fork; keep {"keep": true}; pin {"first", "last"}; save {"filename"}; and the transitions
// truncate {"length"}, drop {"first", "last", "close_gap"}, compact {"capacity"}, expand {"capacity"}, attention
// {"size"}. With {"plan": true} a transition only says what it would do.
void state_action(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
// POST /states {"filename", "model"}: a state from a file.
void load_state_file(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
