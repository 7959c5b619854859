// anthropic.h: POST /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <memory>

#include "serve/routes/service.h"

namespace kvtide::serve {

void messages(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void count_tokens(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
