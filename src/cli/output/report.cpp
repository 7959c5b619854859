#include "cli/output/report.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cli/output/procedural_report.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"
#include "tensor/kv_type.h"

namespace kvtide {
namespace {

Json rate_or_null(double rate) { return rate > 0.0 ? Json(rate) : Json(); }

void set_figures(Json& json, const TurnFigures& figures) {
  json.set("prefill_tokens", figures.prefill_tokens)
      .set("prefill_tok_s", rate_or_null(figures.prefill_rate()))
      .set("decode_tokens", figures.decode_tokens)
      .set("decode_tok_s", rate_or_null(figures.decode_rate()))
      .set("ttft_ms", figures.ttft_seconds ? Json(*figures.ttft_seconds * 1e3) : Json());
}

constexpr std::size_t kEventsShown = 20;

}  // namespace

std::string hash_text(std::uint64_t hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4) text[i] = kDigits[hash & 15];
  return text;
}

void read_session(RunReport& report, const Session& session) {
  report.context_tokens = session.rows();
  report.position = session.position();
  report.context_limit = most_held(session);
  report.stated = session.memory();
  report.measured = read_memory();
}

void print_report(const RunReport& report, const Session& session, bool with_hash) {
  const TurnFigures& f = report.figures;
  const auto line = [](std::string_view what, std::int64_t tokens, double seconds, double rate) {
    return cat(what, count_text(tokens), " tokens in ", time_text(seconds), ", ", number_text(rate, 1),
               " tok/s");
  };
  say(line("read     ", f.prefill_tokens, f.prefill_seconds, f.prefill_rate()));
  say(line("wrote    ", f.decode_tokens, f.decode_seconds, f.decode_rate()) +
      (f.ttft_seconds ? cat("; the first after ", time_text(*f.ttft_seconds)) : ""));
  say(cat("holds    ", count_text(report.context_tokens),
          session.options().procedural ? "" : cat(" of ", count_text(report.context_limit)), " tokens: KV ",
          bytes_text(report.stated.kv), " stated (", kv_type_name(session.options().key_type), " keys, ",
          kv_type_name(session.options().value_type), " values)"));
  say(cat("memory   weights ", bytes_text(report.stated.weights), " + KV + scratch ",
          bytes_text(report.stated.scratch), " + program ", bytes_text(kRuntimeBytes), "; RSS ",
          bytes_text(report.measured.rss), " measured, ", bytes_text(report.measured.anonymous),
          " of it anonymous, peak ", bytes_text(report.measured.peak)));
  if (const std::string words = memory_words(session); !words.empty()) say(cat("policy   ", words));
  for (const std::string& words : procedural_lines(session)) say(words);
  if (report.events.empty()) say("events   none: every token that was read is still held");
  const std::size_t first = report.events.size() - std::min(report.events.size(), kEventsShown);
  if (first > 0) say(cat("events   ", first, " earlier ones are not shown here; --report has them all"));
  for (std::size_t i = first; i < report.events.size(); ++i)
    say(cat(i == first ? "events   " : "         ", event_text(report.events[i])));
  say(cat("stopped  ", f.stop_reason));
  if (with_hash && report.logits_hash) say(cat("logits   hash ", hash_text(*report.logits_hash)));
}

Json report_json(const RunReport& report, const Session& session) {
  Json json = Json::object();
  Json events = Json::array();
  for (const MemoryEvent& event : report.events) events.push(event_json(event));
  set_figures(json, report.figures);
  json.set("context_tokens", report.context_tokens)
      .set("weights_bytes", report.stated.weights)
      .set("kv_bytes", report.stated.kv)
      .set("scratch_bytes", report.stated.scratch)
      .set("runtime_bytes", kRuntimeBytes)
      .set("rss_bytes", report.measured.rss)
      .set("rss_anon_bytes", report.measured.anonymous)
      .set("rss_peak_bytes", report.measured.peak)
      .set("logits_hash", report.logits_hash ? Json(hash_text(*report.logits_hash)) : Json())
      .set("tokens", Json::array(report.tokens))
      .set("text", report.text)
      .set("events", std::move(events))
      .set("loaded_tokens", report.loaded_tokens)
      .set("position", report.position)
      .set("attention_size", session.attention_size() ? Json(*session.attention_size()) : Json())
      .set("key_type", kv_type_name(session.options().key_type))
      .set("value_type", kv_type_name(session.options().value_type))
      .set("stop_reason", report.figures.stop_reason);
  set_procedural(json, session);
  json.set("context_limit", session.options().procedural ? Json() : Json(report.context_limit))
      .set("load_ms", report.load_seconds * 1e3)
      .set("model", session.model().name())
      .set("threads", session.options().threads)
      .set("exact", session.options().exact);
  if (!report.turns.empty()) {
    Json turns = Json::array();
    for (const TurnFigures& turn : report.turns) {
      Json item = Json::object();
      set_figures(item, turn);
      item.set("stop_reason", turn.stop_reason);
      turns.push(std::move(item));
    }
    json.set("turns", std::move(turns));
  }
  return json;
}

}  // namespace kvtide
