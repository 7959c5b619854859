// responses.h: OpenAI's /v1/responses: answers that are stored and gone on from.
#pragma once

#include <memory>

#include "serve/routes/service.h"

namespace kvtide::serve {

void create_response(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void get_response(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void delete_response(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
