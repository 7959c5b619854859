// page.h: GET /: one page with a chat and the memory beside it, which needs nothing from elsewhere.
#pragma once

#include <memory>
#include <string_view>

#include "serve/routes/service.h"

namespace kvtide::serve {

// src/serve/page/index.html, built in.
std::string_view page_text();

void page(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
