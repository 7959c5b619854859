#include "serve/routes/info.h"

#include <utility>

#include "base/text.h"

namespace kvtide::serve {
namespace info {

Json model_object(const Service& service, const ServedModel& served) {
  Json meta = Json::object(), out = Json::object();
  meta.set("n_ctx_train", served.model->context_length()).set("n_vocab", served.model->vocabulary());
  meta.set("n_params", served.model->parameters()).set("size", served.model->weights_bytes());
  out.set("id", served.name).set("object", "model").set("created", service.started());
  out.set("owned_by", "kvtide").set("meta", std::move(meta));
  return out;
}

class Page {
 public:
  // kind: "gauge" or "counter".
  template <class T>
  void add(std::string_view name, std::string_view kind, std::string_view help, T value) {
    text_ += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n", name, " ", value, "\n");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace info

void health(Service&, const Request&, const std::shared_ptr<Reply>& reply) {
  reply->send({200, "application/json", R"({"status":"ok"})"});
}

void list_models(Service& service, const Request&, const std::shared_ptr<Reply>& reply) {
  Json data = Json::array(), out = Json::object();
  for (const ServedModel& served : service.models()) data.push(info::model_object(service, served));
  out.set("object", "list").set("data", std::move(data));
  reply->send({200, "application/json", out.text(false)});
}

void one_model(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::string_view name = request.path().substr(std::string_view("/v1/models/").size());
  for (const ServedModel& served : service.models())
    if (served.name == name)
      return reply->send({200, "application/json", info::model_object(service, served).text(false)});
  throw Error(ErrorCode::not_found, cat("there is no model ", quoted(name)));
}

void metrics(Service& service, const Request&, const std::shared_ptr<Reply>& reply) {
  const Counts c = service.scheduler().counts();
  const double used = static_cast<double>(c.kv_bytes) / static_cast<double>(c.kv_budget);
  info::Page page;
  page.add("vllm:num_requests_waiting", "gauge", "Requests in the queue.", c.waiting);
  page.add("vllm:num_requests_running", "gauge", "Requests at work.", c.running);
  page.add("vllm:kv_cache_usage_perc", "gauge", "Share of the KV budget that is held, 1 is all.", used);
  page.add("kvtide_kv_bytes", "gauge", "Bytes of KV memory held, cached prefixes included.", c.kv_bytes);
  page.add("kvtide_kv_budget_bytes", "gauge", "Bytes of KV memory that may be held.", c.kv_budget);
  page.add("kvtide_cached_states", "gauge", "States in the prefix caches.", c.cached_states);
  page.add("kvtide_requests_total", "counter", "Requests that were queued.", c.requests);
  page.add("kvtide_requests_refused_total", "counter", "Requests refused for lack of room.", c.refused);
  page.add("kvtide_requests_cancelled_total", "counter", "Requests whose client left.", c.cancelled);
  page.add("kvtide_requests_failed_total", "counter", "Requests that failed.", c.failed);
  page.add("kvtide_prompt_tokens_total", "counter", "Tokens of prompts, cached ones included.",
           c.prompt_tokens);
  page.add("kvtide_cached_tokens_total", "counter", "Tokens of prompts that were not read again.",
           c.cached_tokens);
  page.add("kvtide_written_tokens_total", "counter", "Tokens of answers.", c.written_tokens);
  page.add("kvtide_evicted_states_total", "counter", "Cached states that made room.", c.evicted);
  page.add("kvtide_steps_total", "counter", "Passes through a model.", c.steps);
  page.add("kvtide_reading_seconds_total", "counter", "Seconds of passes that read prompts.",
           c.reading_seconds);
  page.add("kvtide_writing_seconds_total", "counter", "Seconds of passes that only wrote.",
           c.writing_seconds);
  page.add("kvtide_drift_sampled_tokens_total", "counter",
           "Tokens at which the drift of procedural memories was measured.", c.drift_tokens);
  page.add("kvtide_drift_output_error_total", "counter",
           "Sum of the relative errors of attention at these tokens.", c.drift_output_error);
  if (service.idle() != nullptr)
    page.add("kvtide_idle_unloads_total", "counter", "Times that an idle model gave its weights back.",
             service.idle()->unloads());
  if (service.disk() != nullptr) {
    const DiskFigures d = service.disk()->figures();
    page.add("kvtide_disk_states", "gauge", "Prefixes on the disk.", d.states);
    page.add("kvtide_disk_bytes", "gauge", "Bytes of prefixes on the disk.", d.bytes);
    page.add("kvtide_disk_hits_total", "counter", "Prefixes that were read from the disk.", d.hits);
    page.add("kvtide_disk_written_total", "counter", "Prefixes that were written to the disk.", d.written);
    page.add("kvtide_disk_broken_total", "counter", "Files that were no sound prefixes.", d.broken);
  }
  reply->send({200, "text/plain; version=0.0.4; charset=utf-8", page.take()});
}

}  // namespace kvtide::serve
