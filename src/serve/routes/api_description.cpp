#include "serve/routes/api_description.h"

#include <string>
#include <utility>

namespace kvtide::serve {

void api_description(Service& service, const Request&, const std::shared_ptr<Reply>& reply) {
  constexpr std::string_view kVersion = "SERVED_VERSION";
  std::string text(openapi_text());
  text.replace(text.find(kVersion), kVersion.size(), service.options().version);
  reply->send({200, "application/json", std::move(text)});
}

}  // namespace kvtide::serve
