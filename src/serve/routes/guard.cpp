#include "serve/routes/guard.h"

#include <algorithm>

#include "base/text.h"

namespace kvtide::serve {
namespace guard {

std::string_view given_key(const Request& request) {
  constexpr std::string_view kBearer = "Bearer ";
  if (const std::string* header = request.header("authorization"); header != nullptr)
    if (std::string_view(*header).starts_with(kBearer))
      return std::string_view(*header).substr(kBearer.size());
  const std::string* header = request.header("x-api-key");
  return header == nullptr ? std::string_view() : std::string_view(*header);
}

bool is_known(const ServiceOptions& options, std::string_view host) {
  return options.any_host || is_loopback(host) ||
         std::find(options.hosts.begin(), options.hosts.end(), host) != options.hosts.end();
}

}  // namespace guard

std::string_view host_of(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(1, authority.find(']') - 1);
  return authority.substr(0, authority.rfind(':'));
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

std::optional<Problem> why_not(const ServiceOptions& options, const Request& request) {
  const std::string* host = request.header("host");
  if (host == nullptr) return Problem{400, "the Host header is missing"};
  if (!guard::is_known(options, host_of(*host)))
    return Problem{
        403, cat("the Host header names ", quoted(host_of(*host)), ", which this server is not known by")};
  if (const std::string* origin = request.header("origin"); origin != nullptr) {
    const std::size_t scheme = origin->find("://");
    if (scheme == origin->npos || origin->substr(scheme + 3) != *host)
      return Problem{403, cat("requests of pages from ", quoted(*origin), " are not answered")};
  }
  // The page holds nothing; what it asks for needs the key.
  const bool open = request.path() == "/health" || request.path() == "/";
  if (options.api_key.empty() || open) return std::nullopt;
  if (!same_secret(guard::given_key(request), options.api_key))
    return Problem{401, "the API key is missing or wrong: Authorization: Bearer KEY, or x-api-key: KEY"};
  return std::nullopt;
}

}  // namespace kvtide::serve
