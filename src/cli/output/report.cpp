#include "cli/output/report.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cli/output/kv_cost.h"
#include "cli/output/procedural_report.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

Json rate_or_null(double rate) { return rate > 0.0 ? Json(rate) : Json(); }

void set_figures(Json& json, const TurnFigures& figures) {
  json.set("prefill_tokens", figures.prefill_tokens)
      .set("prefill_tok_s", rate_or_null(figures.prefill_rate()))
      .set("decode_tokens", figures.decode_tokens)
      .set("decode_tok_s", rate_or_null(figures.decode_rate()))
      .set("drafted", figures.drafted)
      .set("accepted", figures.accepted)
      .set("ttft_ms", figures.ttft_seconds ? Json(*figures.ttft_seconds * 1e3) : Json());
}

constexpr std::size_t kEventsShown = 20;

std::string why_it_stopped(const std::string& reason) {
  if (reason == "end_of_text") return "the model ended the text";
  if (reason == "max_tokens") return "as many as were asked for (-n)";
  if (reason == "stop_string") return "ended by a text of --stop";
  if (reason == "context_full") return "the context is full";
  if (reason == "loop") return "it began to repeat itself";
  if (reason == "cancelled") return "cut short by Ctrl-C";
  return "nothing was asked for";
}

// What the memory holds, in one line: the tokens, the bytes, and what the same text would take in full.
std::string held_text(const RunReport& report, const Session& session) {
  const std::string bytes = cat(" in ", bytes_text(report.stated.kv), " of KV memory");
  const std::string full = cat(" (", full_cache_words(session, report.position), ")");
  std::string text;
  if (const auto& procedural = session.options().procedural) {
    const bool summed = session.procedural_counts()->blocks_sealed > 0;
    text = cat("holds ", count_text(report.position), " tokens", bytes,
               summed ? cat(", the newest ", count_text(procedural->window),
                            " as they are and the older ones as summaries", full)
                      : "");
  } else if (report.context_tokens < report.position) {
    text = cat("holds ", count_text(report.context_tokens), " of the ", count_text(report.position),
               " tokens that were read", bytes, full);
  } else {
    text = cat("holds ", count_text(report.context_tokens), " tokens", bytes, ", with room for ",
               count_text(report.context_limit));
  }
  const auto refills = std::count_if(report.events.begin(), report.events.end(),
                                     [](const MemoryEvent& event) { return event.kind == "refill"; });
  return refills == 0 ? text
                      : cat(text, "; forgot older tokens ", refills, refills == 1 ? " time" : " times",
                            " (--overflow refill)");
}

// What only someone who measures wants to know.
void print_details(const RunReport& report, const Session& session) {
  const TurnFigures& f = report.figures;
  if (f.drafted > 0)
    say(cat("drafts   ", count_text(f.accepted), " of ", count_text(f.drafted),
            " guessed tokens were right"));
  if (f.ttft_seconds) say(cat("first    text after ", time_text(*f.ttft_seconds)));
  say(cat("types    ", element_type_name(session.options().key_type), " keys, ",
          element_type_name(session.options().value_type), " values"));
  say(cat("memory   weights ", bytes_text(report.stated.weights), " + KV ", bytes_text(report.stated.kv),
          " + scratch ", bytes_text(report.stated.scratch), " + program ", bytes_text(kRuntimeBytes),
          "; RSS ", bytes_text(report.measured.rss), " measured, ", bytes_text(report.measured.anonymous),
          " of it anonymous, peak ", bytes_text(report.measured.peak)));
  if (const std::string policy = memory_words(session); !policy.empty()) say(cat("policy   ", policy));
  for (const std::string& line : procedural_lines(session)) say(line);
  if (report.events.empty()) say("events   none: every token that was read is still held");
  const std::size_t first = report.events.size() - std::min(report.events.size(), kEventsShown);
  if (first > 0) say(cat("events   ", first, " earlier ones are not shown here; --report has them all"));
  for (std::size_t i = first; i < report.events.size(); ++i)
    say(cat(i == first ? "events   " : "         ", event_text(report.events[i])));
  say(cat("stopped  ", f.stop_reason));
}

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

void print_report(const RunReport& report, const Session& session, const ReportWords& words) {
  const TurnFigures& f = report.figures;
  const auto line = [](std::string_view what, std::int64_t tokens, double seconds, double rate) {
    const std::string text = cat(what, " ", count_text(tokens), tokens == 1 ? " token" : " tokens");
    return tokens == 0 ? text : cat(text, " in ", time_text(seconds), ", ", number_text(rate, 1), " tok/s");
  };
  say(line("read", f.prefill_tokens, f.prefill_seconds, f.prefill_rate()));
  say(line("wrote", f.decode_tokens, f.decode_seconds, f.decode_rate()) + "; " +
      why_it_stopped(f.stop_reason));
  say(held_text(report, session));
  if (words.everything) print_details(report, session);
  if (session.drift()) say(drift_line(*session.drift()));
  if (words.hash && report.logits_hash) say(cat("logits   hash ", hash_text(*report.logits_hash)));
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
      .set("attention_size", session.attention_size())
      .set("key_type", element_type_name(session.options().key_type))
      .set("value_type", element_type_name(session.options().value_type))
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
