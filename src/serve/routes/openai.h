// openai.h: POST /v1/chat/completions and /v1/completions.
#pragma once

#include <memory>

#include "serve/routes/service.h"

namespace kvtide::serve {

// Each answers through `reply`, at once or later. Throws Error for what is wrong with the request.
void chat_completions(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void completions(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
