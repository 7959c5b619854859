// slots.h: llama-server's /slots: what requests of a slot left, as files.
//
// A request says id_slot: N; what it leaves in the cache is then slot N's.
#pragma once

#include <memory>

#include "serve/routes/service.h"

namespace kvtide::serve {

// GET /slots?model=NAME: of each number below total_slots whether it is busy, and the tokens that it left.
void list_slots(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

// POST /slots/N?action=save|restore|erase, with {"filename": NAME}.
void slot_action(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
