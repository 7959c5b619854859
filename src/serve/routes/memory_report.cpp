#include "serve/routes/memory_report.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "serve/routes/memory_fields.h"
#include "serve/routes/state_numbers.h"
#include "state/procedural/drift_json.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace report {

// Rows per layer and head that a memory holds, by what they are.
Json rows_object(const State& state) {
  const KvState& kv = state.internals().kv;
  Json out = Json::object();
  if (kv.past() == nullptr) {
    const std::int64_t sinks = kv.spec().rolling ? std::min(kv.spec().rolling->sinks, kv.rows()) : 0;
    out.set("sinks", sinks).set("window", kv.rows() - sinks);
    return out;
  }
  const ProceduralCounts counts = kv.past()->counts();
  out.set("sinks", kv.exact_rows(true)).set("window", kv.exact_rows(false));
  out.set("summaries", Json::array(counts.summary_rows)).set("outliers", counts.outlier_rows);
  out.set("copying_heads", counts.full_rows).set("pinned", counts.pinned_rows);
  out.set("blocks", counts.blocks_sealed).set("consolidations", counts.consolidations);
  out.set("log_mass_error", counts.log_mass_error);
  return out;
}

// Null: it was not measured.
Json drift_report(const Drift* drift, std::int64_t position, bool with_heads) {
  if (drift == nullptr) return Json();
  Json out = drift_object(*drift);
  out.set("position", position);
  if (with_heads) out.set("heads", drift_heads(*drift));
  return out;
}

void add_memory(Json& out, const State& state) {
  out.set("kind", kind_of(state)).set("tokens", state.position()).set("rows", rows_object(state));
  out.set("kv_bytes", state.held_bytes()).set("kv_shared_bytes", state.shared_bytes());
  out.set("budget", state.budget()).set("capacity", state.capacity());
  out.set("attention_size", state.attention_size());
}

Json running_object(const Service& service, std::size_t model, const Running& running) {
  Json out = Json::object(), choices = Json::array();
  out.set("model", service.models()[model].name).set("key", running.spec.key);
  out.set("prompt_tokens", running.figures.prompt_tokens).set("cached_tokens", running.figures.cached_tokens);
  out.set("read_tokens", running.read).set("writes", !running.reads());
  for (const Choice& choice : running.choices) {
    Json one = Json::object();
    const State& state = choice.session.state();
    add_memory(one, state);
    const std::optional<Drift> drift = choice.session.drift();
    one.set("drift", drift_report(drift ? &*drift : nullptr, state.position(), false));
    choices.push(std::move(one.set("written_tokens", choice.writer.written())));
  }
  out.set("choices", std::move(choices));
  return out;
}

}  // namespace report

Json state_object(const Service& service, std::size_t model, const PrefixCache::Entry& entry, bool whole) {
  Json out = Json::object();
  out.set("id", state_number(model, entry.id, service.models().size()));
  out.set("model", service.models()[model].name).set("key", entry.key).set("hits", entry.hits);
  out.set("kept", entry.kept).set("by_number", entry.by_number);
  report::add_memory(out, entry.state);
  const MeasuredDrift* measured = entry.drift.get();
  out.set("drift",
          measured == nullptr ? Json() : report::drift_report(&measured->drift, measured->position, whole));
  return out;
}

void memory_report(Service& service, const Request&, const std::shared_ptr<Reply>& reply) {
  Json running = Json::array(), states = Json::array(), out = Json::object();
  service.scheduler().between_steps([&](std::vector<Lane>& lanes) {
    for (std::size_t model = 0; model < lanes.size(); ++model) {
      for (const Running& one : lanes[model].running())
        running.push(report::running_object(service, model, one));
      for (const auto& entry : lanes[model].cache().entries())
        states.push(state_object(service, model, entry));
    }
  });
  const Counts c = service.scheduler().counts();
  out.set("kv_budget", c.kv_budget).set("kv_bytes", c.kv_bytes).set("waiting", c.waiting);
  out.set("prompt_tokens", c.prompt_tokens).set("cached_tokens", c.cached_tokens);
  out.set("written_tokens", c.written_tokens).set("reading_seconds", c.reading_seconds);
  out.set("writing_seconds", c.writing_seconds);
  out.set("running", std::move(running)).set("states", std::move(states));
  reply->send({200, "application/json", out.text(false)});
}

}  // namespace kvtide::serve
