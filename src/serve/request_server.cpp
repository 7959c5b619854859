// The public face of the server: kvtide/server.h.
#include <functional>
#include <utility>

#include "base/out_of_memory.h"
#include "kvtide/heads.h"
#include "kvtide/server.h"
#include "serve/routes/memory_fields.h"
#include "serve/server.h"

namespace kvtide::serve {
namespace {

ServiceOptions service_options(const RequestServerOptions& options) {
  ServiceOptions out;
  out.work.kv_budget = options.kv_budget;
  out.work.context = options.context;
  out.work.max_tokens = options.max_tokens;
  out.work.parallel = options.parallel;
  out.work.queue = options.queue;
  out.work.threads = options.threads;
  out.work.exact = options.exact;
  out.memory = memory_from_text(options.session_kv);
  out.api_key = options.api_key;
  out.hosts = options.hosts;
  out.any_host = options.any_host;
  out.chat_template = options.chat_template;
  out.states_folder = options.states_folder;
  out.cache_folder = options.cache_folder;
  out.cache_bytes = options.cache_bytes;
  out.idle = {options.idle_spill, options.idle_unload};
  out.version = options.version;
  return out;
}

}  // namespace

RequestServer::RequestServer(std::vector<NamedModel> models, const RequestServerOptions& options)
    : models_(std::move(models)) {
  or_out_of_memory([&] {
    std::vector<ServedModel> served;
    for (const NamedModel& each : models_) {
      const Model* model = each.second.get();
      // Those that were measured on one machine are not there on the next, where the same request gives the same bits.
      std::function<HeadTable()> heads = [model] { return known_heads(*model).value_or(HeadTable{}); };
      served.push_back({each.first, model, std::move(heads)});
    }
    server_ = std::make_unique<Server>(std::move(served), service_options(options));
    server_->start();
  });
}

RequestServer::~RequestServer() { stop(0); }

void RequestServer::handle(const Request& request, const std::shared_ptr<Reply>& reply) {
  server_->handle(request, reply);
}

void RequestServer::stop(double drain_seconds) {
  if (!server_) return;
  if (drain_seconds > 0) server_->drain(drain_seconds);
  constexpr double kSaving = 1;  // seconds for prefixes that are not on the disk yet
  server_->stop(kSaving);
  server_.reset();
}

}  // namespace kvtide::serve
