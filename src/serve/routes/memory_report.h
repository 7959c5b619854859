// memory_report.h: what memories hold, as JSON: of cached states, and of answers while they are written.
#pragma once

#include <memory>

#include "base/json/json.h"
#include "serve/routes/service.h"

namespace kvtide::serve {

// A state of a prefix cache; whole: its drift head by head, too. Called on the scheduler's thread.
Json state_object(const Service& service, std::size_t model, const PrefixCache::Entry& entry,
                  bool whole = false);

// GET /memory: the budget, the answers at work, the cached states.
void memory_report(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
