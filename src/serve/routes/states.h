// states.h: the states of the prefix caches, by number, and as files of llama-server's /slots.
//
// A request says id_slot: N; what it leaves in the cache is then slot N's. Files lie in one folder that the server was started
// with, and are called by names: no path from a request reaches the file system. They are snapshots of kvtide run, too.
#pragma once

#include <memory>

#include "serve/routes/service.h"

namespace kvtide::serve {

void list_states(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void one_state(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void drop_state(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

// POST /slots/N?action=save|restore|erase, with {"filename": NAME}.
void slot_action(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
