// kvtide serve: models behind HTTP, for the clients that people have.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/refuse.h"
#include "base/text.h"
#include "cli/arguments/serve_request.h"
#include "cli/commands/choose_heads.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/loading.h"
#include "cli/optional/http_server.h"
#include "cli/optional/optional_actions.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "serve/routes/guard.h"
#include "serve/routes/memory_fields.h"
#include "serve/server.h"

namespace kvtide {
namespace {

// Throws Error(invalid_argument) for two models of one name, and for a server that anybody could reach.
void check_serve_request(const Arguments& a) {
  if (a.model.empty()) refuse("-m MODEL is missing: kvtide serve -m MODEL [-m NAME=MODEL ...] [flags]");
  std::vector<std::string> names = a.serve.names;
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    refuse(cat("-m: two models are called ", quoted(*twice), "; -m NAME=MODEL gives one another name"));
  if (a.serve.idle_spill > 0 && a.serve.cache_folder.empty())
    refuse("--idle-spill needs a folder to write to: --cache-dir FOLDER");
  if (!serve::is_loopback(a.serve.host) && a.serve.api_key.empty() && !a.serve.no_auth)
    refuse(cat("--host ", a.serve.host,
               ": anybody who reaches this address could use the models; --api-key KEY "
               "keeps them out, --insecure-no-auth lets them in"));
}

// From SIGTERM to the last byte that is saved; those who send it often kill after ten.
constexpr double kEndSeconds = 9;

serve::ServiceOptions service_options(const Arguments& a) {
  serve::ServiceOptions out;
  out.work.kv_budget = a.serve.kv_budget;
  out.work.checkpoints = a.session.checkpoints;
  out.work.context = a.session.context;
  out.work.max_tokens = a.serve.max_tokens;
  out.work.parallel = static_cast<int>(a.serve.parallel);
  out.work.queue = static_cast<int>(a.serve.queue);
  out.work.threads = a.session.threads;
  out.work.exact = a.session.exact;
  out.work.key_type = a.session.key_type;
  out.work.value_type = a.session.value_type;
  out.memory = serve::memory_from_text(a.serve.session_kv);
  out.api_key = a.serve.api_key;
  out.any_host = !serve::is_loopback(a.serve.host);
  out.chat_template = a.chat_template;
  out.states_folder = a.serve.states_folder;
  out.cache_folder = a.serve.cache_folder;
  out.cache_bytes = a.serve.cache_bytes;
  out.idle = {a.serve.idle_spill, a.serve.idle_unload};
  out.version = KVTIDE_VERSION;
  out.log = [](const std::string& line) { say(line); };
  return out;
}

}  // namespace

int serve_command(const Arguments& given) {
  Arguments arguments = given;
  if (const char* key = std::getenv("KVTIDE_API_KEY"); key != nullptr && arguments.serve.api_key.empty())
    arguments.serve.api_key = key;
  check_serve_request(arguments);
  const serve::ServiceOptions service = service_options(arguments);
  std::vector<std::unique_ptr<Model>> models;
  std::vector<serve::ServedModel> served;
  for (std::size_t i = 0; i < arguments.models.size(); ++i) {
    models.push_back(std::make_unique<Model>(load_model(arguments.models[i], arguments)));
    const bool summarises = arguments.serve.session_kv.starts_with("procedural");
    const Model* model = models.back().get();
    std::function<HeadTable()> heads = [&arguments, model] {
      return known_heads(arguments, *model).value_or(HeadTable{});
    };
    // Measuring takes long: before anybody asks, and only where all answers need it.
    if (summarises) heads = [table = choose_heads(arguments, *model)] { return table; };
    served.push_back({arguments.serve.names[i], model, std::move(heads)});
  }
  serve::Server server(std::move(served), service);
  HttpOptions options;
  options.host = arguments.serve.host;
  options.port = static_cast<std::uint16_t>(arguments.serve.port);
  HttpServer http(server, options);
  server.start();
  const bool v6 = options.host.find(':') != options.host.npos;
  std::string names;
  for (const std::string& name : arguments.serve.names) names += cat(names.empty() ? "" : ", ", name);
  say(cat("serving ", names, " at http://", v6 ? "[" : "", options.host, v6 ? "]" : "", ":", http.port(),
          ", KV budget ", bytes_text(arguments.serve.kv_budget), "; Ctrl-C ends it"));
  const bool ended = http.run([&](const std::string& line) {
    if (!arguments.serve.quiet) say(line);
  });
  server.stop(std::max(
      0.5, kEndSeconds - http.ending_seconds()));  // while there are connections that answers can go to
  say(ended ? "all answers have ended" : "answers that took too long were cancelled");
  return kExitFine;
}

}  // namespace kvtide
