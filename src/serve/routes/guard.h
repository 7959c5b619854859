// guard.h: who may ask: the host that a request names, the page that it comes from, and the key.
//
// Pure functions.
#pragma once

#include <optional>

#include "serve/http/problem.h"
#include "serve/routes/service.h"

namespace kvtide::serve {

// nullopt: the request may pass. A browser that was led here by another name (DNS rebinding), or by a page of another
// origin, is refused whatever it asks for.
std::optional<Problem> why_not(const ServiceOptions& options, const Request& request);

// "example.org" of "example.org:8080", "::1" of "[::1]:8080".
std::string_view host_of(std::string_view authority);
bool is_loopback(std::string_view host);

}  // namespace kvtide::serve
