#include "serve/server.h"

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "serve/routes/anthropic.h"
#include "serve/routes/api_description.h"
#include "serve/routes/guard.h"
#include "serve/routes/info.h"
#include "serve/routes/llama.h"
#include "serve/routes/memory_report.h"
#include "serve/routes/openai.h"
#include "serve/routes/page.h"
#include "serve/routes/responses.h"
#include "serve/routes/slots.h"
#include "serve/routes/states.h"

namespace kvtide::serve {
namespace server {

using Handler = void (*)(Service&, const Request&, const std::shared_ptr<Reply>&);

struct Route {
  std::string_view method, path;  // a path that ends with * stands for all that begin so
  Handler handler;                // nullptr: not implemented, for the reason that follows
  std::string_view reason = {};
};

constexpr std::string_view kNoEmbeddings =
    "the models served here write text; embeddings are not implemented";
constexpr std::string_view kNoSound = "only text is read and written";

constexpr Route kRoutes[] = {
    {"GET", "/", &page},
    {"GET", "/openapi.json", &api_description},
    {"GET", "/health", &health},
    {"GET", "/v1/health", &health},
    {"GET", "/v1/models", &list_models},
    {"GET", "/models", &list_models},
    {"GET", "/v1/models/*", &one_model},
    {"GET", "/metrics", &metrics},
    {"GET", "/props", &props},
    {"POST", "/v1/chat/completions", &chat_completions},
    {"POST", "/v1/completions", &completions},
    {"POST", "/v1/messages", &messages},
    {"POST", "/v1/messages/count_tokens", &count_tokens},
    {"POST", "/v1/responses", &create_response},
    {"GET", "/v1/responses/*", &get_response},
    {"DELETE", "/v1/responses/*", &delete_response},
    {"POST", "/completion", &llama_completion},
    {"GET", "/slots", &list_slots},
    {"POST", "/slots/*", &slot_action},
    {"GET", "/memory", &memory_report},
    {"GET", "/states", &list_states},
    {"POST", "/states", &load_state_file},
    {"POST", "/states/*", &state_action},
    {"GET", "/states/*", &one_state},
    {"DELETE", "/states/*", &drop_state},
    {"POST", "/tokenize", &tokenize},
    {"POST", "/detokenize", &detokenize},
    {"POST", "/apply-template", &apply_template},
    {"POST", "/v1/embeddings", nullptr, kNoEmbeddings},
    {"POST", "/embedding", nullptr, kNoEmbeddings},
    {"POST", "/v1/rerank", nullptr, kNoEmbeddings},
    {"POST", "/infill", nullptr, "text is only written behind a prompt"},
    {"POST", "/v1/audio/*", nullptr, kNoSound},
    {"POST", "/v1/images/*", nullptr, kNoSound},
};

bool matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with('*')) return route.path == path;
  const std::string_view front = route.path.substr(0, route.path.size() - 1);
  return path.starts_with(front) && path.size() > front.size();
}

Problem no_route(const Request& request) {
  std::string methods;
  for (const Route& route : kRoutes)
    if (matches(route, request.path())) methods += cat(methods.empty() ? "" : ", ", route.method);
  if (methods.empty()) return {404, cat("there is no route ", quoted(request.path()))};
  return {
      405, cat(quoted(request.path()), " takes ", methods, ", not ", quoted(request.method)), {}, methods};
}

const Route* route_of(const Request& request) {
  for (const Route& route : kRoutes)
    if (matches(route, request.path()) && route.method == request.method) return &route;
  return nullptr;
}

Dialect dialect_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? Dialect::anthropic : Dialect::openai;
}

}  // namespace server

std::vector<Server::RouteName> Server::routes() {
  std::vector<RouteName> out;
  for (const server::Route& route : server::kRoutes) out.push_back({route.method, route.path});
  return out;
}

void Server::handle(const Request& request, const std::shared_ptr<Reply>& reply) {
  const Dialect dialect = server::dialect_of(request.path());
  const auto refuse = [&](const Problem& problem) { reply->send(problem_response(problem, dialect)); };
  try {
    if (const auto problem = why_not(service_.options(), request)) return refuse(*problem);
    const server::Route* route = server::route_of(request);
    if (route == nullptr) {
      Problem problem = server::no_route(request);
      const std::string allow = std::exchange(problem.code, "");
      Response response = problem_response(problem, dialect);
      if (!allow.empty()) response.headers.emplace_back("Allow", allow);
      return reply->send(std::move(response));
    }
    if (route->handler == nullptr) return refuse({501, std::string(route->reason), {}, "unsupported"});
    route->handler(service_, request, reply);
  } catch (const DoFirst& first) {
    service_.apart([this, request, reply, dialect, work = first.work] {
      try {
        work();
      } catch (const Error& error) {
        return reply->send(problem_response(problem_of(error), dialect));
      } catch (const std::bad_alloc&) {
        return reply->send(problem_response({503, "out of memory", {}, {}, 1}, dialect));
      }
      handle(request, reply);
    });
  } catch (const Error& error) {
    refuse(problem_of(error));
  } catch (const std::bad_alloc&) {
    refuse({503, "out of memory", {}, {}, 1});
  } catch (const std::exception& bug) {
    refuse({500, cat("a bug: ", bug.what())});
  }
}

}  // namespace kvtide::serve
