#include "serve/http/problem.h"

#include <string_view>

#include "base/json/json.h"
#include "serve/http/fields.h"

namespace kvtide::serve {
namespace problem {

std::string_view openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_supported_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace problem

Problem problem_of(const Error& error) {
  Problem out{400, error.message(), std::string(field_of(error.message()))};
  switch (error.code()) {
    case ErrorCode::invalid_argument:
    case ErrorCode::bad_format:
    case ErrorCode::bad_text:
      break;
    case ErrorCode::unsupported:
      out.code = "unsupported";
      break;
    case ErrorCode::context_full:
      out.code = "context_length_exceeded";
      break;
    case ErrorCode::not_found:
      out.status = 404;
      break;
    case ErrorCode::out_of_memory:
    case ErrorCode::cancelled:
      out.status = 503;
      out.retry_after = 1;
      break;
    case ErrorCode::io:
    case ErrorCode::numeric:
      out.status = 500;
      break;
  }
  return out;
}

std::string problem_body(const Problem& p, Dialect dialect) {
  Json inner = Json::object(), out = Json::object();
  if (dialect == Dialect::anthropic) {
    inner.set("type", problem::anthropic_type(p.status)).set("message", p.message);
    out.set("type", "error").set("error", std::move(inner));
    return out.text(false);
  }
  inner.set("message", p.message).set("type", problem::openai_type(p.status));
  inner.set("param", p.param.empty() ? Json() : Json(p.param));
  inner.set("code", p.code.empty() ? Json() : Json(p.code));
  out.set("error", std::move(inner));
  return out.text(false);
}

Response problem_response(const Problem& p, Dialect dialect) {
  Response out{p.status, "application/json", problem_body(p, dialect)};
  if (p.retry_after > 0) out.headers.emplace_back("Retry-After", std::to_string(p.retry_after));
  if (p.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

}  // namespace kvtide::serve
