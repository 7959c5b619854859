#include "serve/routes/page.h"

#include <string>
#include <utility>

namespace kvtide::serve {

void page(Service&, const Request&, const std::shared_ptr<Reply>& reply) {
  Response out{200, "text/html; charset=utf-8", std::string(page_text())};
  // The page asks this server alone, and no other page may show it.
  out.headers = {
      {"Content-Security-Policy",
       "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Cache-Control", "no-cache"}};
  reply->send(std::move(out));
}

}  // namespace kvtide::serve
