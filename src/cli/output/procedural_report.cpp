#include "cli/output/procedural_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/text.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "model/loaded_model.h"
#include "state/procedural/drift_json.h"

namespace kvtide {
namespace {

Json rows_json(const ProceduralCounts& c) {
  Json rows = Json::object();
  rows.set("sinks", c.sink_rows)
      .set("window", c.window_rows)
      .set("full", c.full_rows)
      .set("summaries", Json::array(c.summary_rows))
      .set("outliers", c.outlier_rows)
      .set("pinned", c.pinned_rows)
      .set("spilled", c.spilled_rows);
  return rows;
}

Json shed_json(const ProceduralCounts& c) {
  Json shed = Json::object();
  shed.set("tokens", c.shed_mass)
      .set("soft", c.shed_soft)
      .set("hard", c.shed_hard)
      .set("level_hits", c.level_hits)
      .set("thinned", c.thinned);
  return shed;
}

std::int64_t summaries_of(const ProceduralCounts& c) {
  return std::accumulate(c.summary_rows.begin(), c.summary_rows.end(), std::int64_t{0});
}

Json event_line(const ProceduralEvent& e) {
  const ProceduralCounts& c = e.after;
  Json json = Json::object();
  constexpr std::string_view kKinds[] = {"seal", "consolidation", "row_type"};
  json.set("kind", kKinds[static_cast<std::size_t>(e.kind)])
      .set("position", e.position)
      .set("first", e.block.first)
      .set("last", e.block.last)
      .set("level", e.level)
      .set("rows", rows_json(c))
      .set("bytes", e.bytes)
      .set("bytes_peak", c.bytes_peak)
      .set("spill_bytes", c.spilled_bytes)
      .set("shed", shed_json(c))
      .set("fits_rejected", c.fits_rejected)
      .set("log_mass_error", c.log_mass_error)
      .set("ms", e.seconds * 1e3);
  if (e.kind == ProceduralEvent::Kind::row_type)
    json.set("key_type", element_type_name(e.key_type)).set("value_type", element_type_name(e.value_type));
  return json;
}

// Of all pairs of a token and a head of a layer without a window of its own, those that no row stands for any more.
double gone_share(const Session& session, const ProceduralCounts& c) {
  const ModelConfig& config = session.model().internals().config;
  const auto layers = std::count_if(config.layers.begin(), config.layers.end(), [](const LayerConfig& layer) {
    return layer.mixer == Mixer::attention && !layer.window && layer.rows_of < 0;
  });
  const double pairs =
      static_cast<double>(session.position()) * static_cast<double>(layers * config.kv_heads);
  return pairs > 0.0 ? c.shed_mass / pairs : 0.0;
}

std::string percent(double share) { return number_text(100.0 * share, 1) + "%"; }

}  // namespace

Json drift_json(const std::optional<Drift>& drift) {
  if (!drift) return Json();
  Json json = drift_object(*drift);
  json.set("heads", drift_heads(*drift));
  return json;
}

std::string drift_words(const Session& session) {
  const auto drift = session.drift();
  if (!drift || drift->tokens == 0) return "";
  return cat("drift ", percent(drift->output.mean), " (layer ", drift->worst_layer, ": ",
             percent(drift->worst_output), ")");
}

void say_what_the_budget_picked(const Session& session) {
  const auto plan = session.procedural_plan();
  if (!plan || session.options().procedural->budget == 0) return;
  const ProceduralOptions& p = *session.options().procedural;
  say(cat("budget   ", bytes_text(p.budget), " picked window ", count_text(p.window),
          p.window_type == WindowType::q8_0 ? " in q8_0 (" : " (", bytes_text(plan->window),
          plan->rings > 0 ? cat("; sliding layers ", bytes_text(plan->rings)) : "", "), blocks of ", p.block,
          " with ", p.rows, " rows, ", p.summaries, " of them summaries, on ", p.levels,
          p.levels == 1 ? " level (" : " levels (", bytes_text(plan->compact), "), copying heads ",
          p.full_rows == 0 ? "all rows" : cat(count_text(p.full_rows), " rows"), " in ", name_of(p.full_type),
          " (", bytes_text(plan->full), "), references ", bytes_text(plan->references), ": at most ",
          bytes_text(plan->total())));
}

void set_procedural(Json& report, const Session& session) {
  const auto counts = session.procedural_counts();
  if (!counts) {
    for (const char* key :
         {"kv_budget", "kv_full_type", "kv_bytes_peak", "kv_steady_from", "kv_spill_bytes", "rows", "seals",
          "consolidations", "seal_ms", "shed", "fits_rejected", "log_mass_error", "drift"})
      report.set(key, Json());
    return;
  }
  const std::int64_t budget = session.options().procedural->budget;
  report.set("kv_budget", budget > 0 ? Json(budget) : Json())
      .set("kv_full_type", name_of(session.options().procedural->full_type))
      .set("kv_bytes_peak", counts->bytes_peak)
      .set("kv_steady_from", counts->steady_from)
      .set("kv_spill_bytes", counts->spilled_bytes)
      .set("rows", rows_json(*counts))
      .set("seals", counts->blocks_sealed)
      .set("consolidations", counts->consolidations)
      .set("seal_ms", counts->seal_seconds * 1e3)
      .set("shed", shed_json(*counts))
      .set("fits_rejected", counts->fits_rejected)
      .set("log_mass_error", counts->log_mass_error)
      .set("drift", drift_json(session.drift()));
}

std::string drift_line(const Drift& drift) {
  return cat("drift    output off by ", percent(drift.output.mean), " (median ", percent(drift.output.p50),
             ", worst 1% ", percent(drift.output.p99), ", worst layer ", drift.worst_layer, " with ",
             percent(drift.worst_output), "), log mass by ", number_text(drift.log_mass.mean, 3),
             " nats, top rows shared ", percent(drift.overlap.mean), "; ", count_text(drift.tokens),
             " tokens compared in ", time_text(drift.seconds), ", with ", bytes_text(drift.bytes),
             " kept for the purpose outside the budget");
}

std::vector<std::string> procedural_lines(const Session& session) {
  const auto c = session.procedural_counts();
  if (!c) return {};
  std::vector<std::string> lines;
  lines.push_back(cat("keeps    ", count_text(c->sink_rows + c->window_rows), " exact rows, ",
                      count_text(c->full_rows), " of copying heads",
                      c->spilled_rows > 0
                          ? cat(" (", count_text(c->spilled_rows), " of them in the spill file, ",
                                bytes_text(c->spilled_bytes), ")")
                          : "",
                      ", ", count_text(c->outlier_rows), " outliers, ", count_text(summaries_of(*c)),
                      " summaries, over all layers and heads; KV peak ", bytes_text(c->bytes_peak),
                      c->blocks_sealed > 0 && c->steady_from > 0 && !session.procedural_plan()->grows
                          ? cat(", its final level since position ", count_text(c->steady_from))
                          : ""));
  lines.push_back(cat("did      ", count_text(c->blocks_sealed), " blocks compressed and ",
                      count_text(c->consolidations), " times merged in ", time_text(c->seal_seconds), "; ",
                      percent(gone_share(session, *c)), " of what heads saw of tokens has no row left (",
                      count_text(c->shed_soft), " rows faded, ", count_text(c->shed_hard), " over the cap, ",
                      count_text(c->thinned), " times old text of copying heads thinned out), ",
                      count_text(c->fits_rejected), " fits rejected, log mass off by ",
                      number_text(c->log_mass_error, 3), " nats"));
  return lines;
}

MemoryEvent procedural_event(const Session& session) {
  const ProceduralCounts c = *session.procedural_counts();
  return {"procedural",
          session.position(),
          {{"seals", c.blocks_sealed},
           {"consolidations", c.consolidations},
           {"exact", c.sink_rows + c.window_rows},
           {"full", c.full_rows},
           {"summaries", summaries_of(c)},
           {"outliers", c.outlier_rows},
           {"shed_tokens", std::llround(c.shed_mass)},
           {"thinned", c.thinned},
           {"bytes_peak", c.bytes_peak}},
          c.seal_seconds * 1e3};
}

SealLog::SealLog(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_.open(path, std::ios::trunc);
  if (!file_) throw Error(ErrorCode::io, cat(path, ": the log (--kv-log) cannot be written there"));
}

void SealLog::note(const Session& session) {
  if (path_.empty() || session.position() == seen_) return;
  const std::vector<ProceduralEvent> events = session.newest_seal();
  if (events.empty() || events.front().position == seen_) return;
  seen_ = events.front().position;
  for (const ProceduralEvent& event : events) file_ << event_line(event).text(false) << '\n';
  // At once: who follows the file sees what happens.
  if (!file_.flush()) throw Error(ErrorCode::io, cat(path_, ": the log (--kv-log) takes no more"));
}

}  // namespace kvtide
