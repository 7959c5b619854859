// api_description.h: GET /openapi.json: every route, as an OpenAPI document. The test of it compares it with the table of
// routes.
#pragma once

#include <memory>
#include <string_view>

#include "serve/routes/service.h"

namespace kvtide::serve {

// src/serve/page/openapi.json, built in.
std::string_view openapi_text();

void api_description(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
