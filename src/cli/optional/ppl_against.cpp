#include "cli/optional/ppl_against.h"

#include <algorithm>
#include <cmath>

#include "base/json/json.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/interrupt.h"
#include "cli/output/columns.h"
#include "cli/output/procedural_report.h"
#include "cli/output/progress.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"
#include "eval/compare.h"
#include "eval/control.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

double share(double change) { return std::exp(change) - 1.0; }  // of ln PPL: 0.01 is +1%

// control: "full" or "window".
void set_score(Json& json, const Score& ours, const Score& theirs, const std::string& control) {
  json.set("ppl", ours.ppl)
      .set("ppl_se", ours.ppl_se)
      .set("tokens_scored", ours.tokens)
      .set(cat(control, "_ppl"), theirs.ppl)
      .set("dppl", share(ours.change.mean))
      .set("dppl_low", share(ours.change.low))
      .set("dppl_high", share(ours.change.high))
      .set("kl", ours.kl)
      .set("kl_p99", ours.kl_p99)
      .set("agreement", ours.agreement);
}

std::vector<std::string> row(const std::string& name, const Score& ours, const Score& theirs) {
  return {name,
          number_text(ours.ppl, 4),
          number_text(theirs.ppl, 4),
          percent_text(share(ours.change.mean)),
          cat(percent_text(share(ours.change.low)), " to ", percent_text(share(ours.change.high))),
          number_text(ours.kl, 4),
          number_text(ours.kl_p99, 3),
          cat(number_text(100.0 * ours.agreement, 1), "%")};
}

}  // namespace

std::string control_words(const SessionOptions& control) {
  if (!control.rolling) return "the full f16 cache";
  return cat("a full f16 cache over the newest ",
             count_text(control.rolling->sinks + control.rolling->window), " tokens (",
             control.rolling->sinks,
             " sinks among them): the model was trained for no more, so that a longer one is no measure");
}

std::string window_words(const SessionOptions& window) {
  return cat(window.rolling->sinks, " sinks and the newest ", count_text(window.rolling->window), ", ",
             element_type_name(window.key_type));
}

void ppl_against(const Arguments& arguments, Session& session, std::span<const TokenId> tokens) {
  const Stopwatch watch;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const Model& model = session.model();
  const bool window = arguments.against == Against::window;
  const std::string name = window ? "window" : "full";
  const SessionOptions options_beside =
      window ? window_beside(model, session.options(), count) : full_cache(model, session.options(), count);
  const std::string words = window ? window_words(options_beside) : control_words(options_beside);
  Session beside(model, options_beside);
  say(cat("against ", words));
  Progress progress("comparing", session);
  CompareOptions options;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    progress.update(done, total, drift_words(session));
    return !interrupted() || done == total;
  };
  Session* both[] = {&beside, &session};
  const Comparison comparison = compare(both, tokens, options);
  const Score all = comparison.score(1, 0, count), all_beside = comparison.score(0, 0, count);

  Json buckets = Json::array(), chunks = Json::array();
  std::vector<std::vector<std::string>> table = {
      {"positions", "ppl", name, "dPPL", "95% of it", "KL", "KL p99", "same top"}};
  for (Pos first = 0; first < count; first += arguments.bucket) {
    const Pos last = std::min<Pos>(count, first + arguments.bucket);
    const Score ours = comparison.score(1, first, last), theirs = comparison.score(0, first, last);
    if (ours.tokens == 0) continue;
    Json item = Json::object();
    item.set("first", first).set("last", last);
    set_score(item, ours, theirs, name);
    buckets.push(std::move(item));
    chunks.push(Json(ours.ppl));
    table.push_back(row(cat(count_text(first), " to ", count_text(last - 1)), ours, theirs));
  }
  table.push_back(row("all", all, all_beside));
  if (session.drift()) say(drift_line(*session.drift()));
  if (!arguments.json) return write_result(columns_text(table));
  Json json = Json::object();
  set_score(json, all, all_beside, name);
  json.set("control", words)
      .set("kv_bytes", session.memory().kv)
      .set(cat(name, "_kv_bytes"), beside.memory().kv)
      .set("chunks", std::move(chunks))
      .set("drift", drift_json(session.drift()))
      .set("seconds", watch.seconds())
      .set("buckets", std::move(buckets));
  write_result(json.text() + "\n");
}

}  // namespace kvtide
