#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "validate/inspection.h"

namespace kvtide {
namespace {

// What a router may prefer an expert by and still take another in arithmetic of this gate.
double tie_of(double gate) { return 0.1 * relative_of(gate); }

const NearTie* tie_at(const Inspection& in, int layer, Pos token) {
  for (const NearTie& tie : in.golden.ties)
    if (tie.layer == layer && tie.token == token && tie.margin < tie_of(in.options.gate)) return &tie;
  return nullptr;
}

LayerTable table_of(Inspection& in, std::size_t schedule, const Run& run, bool isolated) {
  LayerTable table{in.golden.layers, run.tokens, {}, {}, {}, {}};
  for (int layer = 0; layer < in.layers(); ++layer)
    for (Pos t = 0; t < run.tokens; ++t) {
      const auto wanted_in = in.golden.stream(layer, t);
      const auto was_in = isolated ? wanted_in : run.stream(layer, t, in.golden.width);
      const auto found = run.stream(layer + 1, t, in.golden.width);
      std::span<const float> wanted = in.golden.stream(layer + 1, t);
      Likeness change = likeness_of_change(was_in, found, wanted_in, wanted);
      if (const NearTie* tie = tie_at(in, layer, t); tie != nullptr && !alike(change, in.gate_of(t)))
        if (const Likeness other = likeness_of_change(was_in, found, wanted_in, tie->stream);
            alike(other, in.gate_of(t))) {
          change = other;
          wanted = tie->stream;
          in.ties.insert({layer, t});
        }
      const Likeness sum = likeness(found, wanted);
      table.change_cosine.push_back(static_cast<float>(change.cosine));
      table.change_error.push_back(static_cast<float>(change.max_abs));
      table.sum_cosine.push_back(static_cast<float>(sum.cosine));
      table.sum_error.push_back(static_cast<float>(sum.max_abs));
      // In a chain the errors of all layers below add up: only their sum is held against the gate.
      const Likeness& judged = isolated || !in.isolates() ? change : sum;
      if (!alike(judged, in.gate_of(t)))
        in.differences.push_back({schedule, isolated, layer, t, judged.cosine});
    }
  return table;
}

std::vector<double> log_softmax(std::span<const float> logits) {
  double top = -INFINITY, sum = 0.0;
  for (const float x : logits) top = std::max(top, static_cast<double>(x));
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  std::vector<double> out;
  for (const float x : logits) out.push_back(static_cast<double>(x) - top - std::log(sum));
  return out;
}

std::size_t likeliest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// How much the reference prefers its own choice, in logits, before another choice counts as a difference.
double margin(double gate) { return gate > 0.999 ? 0.05 : 1.0; }

bool judge_logits(const Inspection& in, const Run& run, ScheduleResult& result) {
  const auto vocab = static_cast<std::size_t>(in.golden.vocab);
  bool fine = true;
  std::size_t asked = 0;
  for (std::size_t i = 0; i < run.known.size(); ++i) {
    const auto found = std::span(run.logits).subspan(i * vocab, vocab);
    const auto wanted =
        std::span(in.golden.logits).subspan(static_cast<std::size_t>(run.known[i]) * vocab, vocab);
    const Likeness alike_logits = likeness(found, wanted);
    result.logits_cosine = std::min(result.logits_cosine, alike_logits.cosine);
    result.logits_error = std::max(result.logits_error, alike_logits.max_abs);
    const auto p = log_softmax(wanted), q = log_softmax(found);
    double kl = 0.0;
    for (std::size_t k = 0; k < vocab; ++k) kl += std::exp(p[k]) * (p[k] - q[k]);
    if (!std::isfinite(kl)) kl = INFINITY;
    result.kl_mean += kl;
    result.kl_worst = std::max(result.kl_worst, kl);
    ++asked;
    const std::size_t ours = likeliest(found), theirs = likeliest(wanted);
    result.top_same += ours == theirs;
    const bool apart = in.set_apart[static_cast<std::size_t>(run.known[i])] != 0;
    const double preferred = static_cast<double>(wanted[theirs] - wanted[ours]);
    if (!(alike_logits.cosine >= in.gate_of(run.known[i])) || (!apart && preferred > margin(in.options.gate)))
      fine = false;
  }
  result.top_asked = static_cast<std::int64_t>(asked);
  if (asked > 0) result.kl_mean /= static_cast<double>(asked);
  return fine;
}

// The schedules against the first: the same model must not depend on how a text is cut.
std::vector<std::size_t> unlike_first(const Inspection& in, std::vector<ScheduleResult>& results) {
  std::vector<std::size_t> out;
  const Run& first = in.chained.front();
  const auto vocab = static_cast<std::size_t>(in.shape.vocab);
  for (std::size_t s = 1; s < in.chained.size(); ++s) {
    const Run& other = in.chained[s];
    bool same = true, bits = true;
    for (std::size_t i = 0, j = 0; i < first.known.size() && j < other.known.size();) {
      if (first.known[i] != other.known[j]) {
        ++(first.known[i] < other.known[j] ? i : j);
        continue;
      }
      const auto a = std::span(other.logits).subspan(j * vocab, vocab),
                 b = std::span(first.logits).subspan(i * vocab, vocab);
      bits = bits && std::equal(a.begin(), a.end(), b.begin());
      same = same && likeness(a, b).cosine >= 0.9999;
      ++i, ++j;
    }
    if (in.shape.gives_hidden)
      for (std::int64_t layer = 0; layer <= in.layers(); ++layer)
        for (Pos t = 0; t < std::min(first.tokens, other.tokens); ++t) {
          const auto a = other.stream(layer, t, in.shape.width), b = first.stream(layer, t, in.shape.width);
          bits = bits && std::equal(a.begin(), a.end(), b.begin());
          same = same && likeness(a, b).cosine >= 0.9999;
        }
    results[s].same_bits = bits;
    if (!same) out.push_back(s);
  }
  return out;
}

double worst_of(const std::vector<float>& values) {
  return values.empty() ? 1.0 : static_cast<double>(*std::min_element(values.begin(), values.end()));
}

void note_apart(Inspection& in) {
  if (!in.judges_layers()) return;
  for (TokenNote& note : in.report.apart)
    for (const ScheduleResult& result : in.report.schedules)
      for (const LayerTable* table : {&result.isolated, &result.chained})
        if (note.token < table->tokens && !table->change_cosine.empty())
          for (std::int64_t layer = 0; layer < table->layers; ++layer)
            note.cosine = std::min(
                note.cosine,
                static_cast<double>(
                    table->change_cosine[static_cast<std::size_t>(layer * table->tokens + note.token)]));
}

// What the checks say in the end, over all schedules.
struct Totals {
  std::vector<std::string> logits_wrong, refused;
  double isolated_worst = 1.0, sum_worst = 1.0, kl = 0.0, logits_worst = 1.0;
  std::int64_t top_same = 0, top_asked = 0;
};

void measure(Inspection& in, std::size_t s, Totals& totals) {
  const Schedule& schedule = in.schedules[s];
  ScheduleResult& result = in.report.schedules.emplace_back();
  result.name = schedule.name;
  result.calls = schedule.calls;
  if (in.isolates()) {
    RunOptions options;
    options.feed = &in.golden;
    in.isolated.push_back(run(in.model, in.tokens, schedule, options));
    in.isolated.back().logits.clear();
    result.isolated = table_of(in, s, in.isolated.back(), true);
    totals.isolated_worst = std::min(totals.isolated_worst, worst_of(result.isolated.change_cosine));
  }
  in.chained.push_back(run(in.model, in.tokens, schedule, {}));
  Run& chained = in.chained.back();
  if (!chained.refusal.empty()) totals.refused.push_back(cat(schedule.name, ": ", chained.refusal));
  if (in.judges_layers()) {
    for (Pos t = 0; t < chained.tokens; ++t) {
      const Likeness embedding = likeness(chained.stream(0, t, in.shape.width), in.golden.stream(0, t));
      if (!alike(embedding, in.gate_of(t))) in.differences.push_back({s, false, -1, t, embedding.cosine});
    }
    result.chained = table_of(in, s, chained, false);
    totals.sum_worst = std::min(totals.sum_worst, worst_of(result.chained.sum_cosine));
  }
  if (!in.golden.logits.empty() && !judge_logits(in, chained, result))
    totals.logits_wrong.push_back(schedule.name);
  totals.kl = std::max(totals.kl, result.kl_mean);
  totals.logits_worst = std::min(totals.logits_worst, result.logits_cosine);
  totals.top_same += result.top_same;
  totals.top_asked += result.top_asked;
}

Outcome failed(bool wrong) { return wrong ? Outcome::failed : Outcome::passed; }

void judge_all_layers(Inspection& in, const Totals& totals) {
  const auto differs = [&](bool isolated) {
    return std::any_of(in.differences.begin(), in.differences.end(),
                       [&](const Difference& d) { return d.isolated == isolated; });
  };
  if (!totals.refused.empty()) in.add_check("reading", Outcome::failed, list_text(totals.refused));
  if (in.isolates())
    in.add_check("isolated layers", failed(differs(true)),
                 cat("worst cosine of a change ", cosine_text(totals.isolated_worst),
                     in.ties.empty() ? ""
                                     : cat("; routers took the other expert of a near tie at ",
                                           in.ties.size(), in.ties.size() == 1 ? " place" : " places")));
  else
    in.add_check(
        "isolated layers", Outcome::skipped,
        in.golden.hidden.empty() ? "the reference has no layers" : "layers of this model cannot be fed");
  if (in.judges_layers())
    in.add_check("chained layers", failed(differs(false)),
                 cat("worst cosine of a sum ", cosine_text(totals.sum_worst)));
  else
    in.add_check("chained layers", Outcome::skipped, "no layers to compare");
  if (in.golden.logits.empty())
    in.add_check("logits", Outcome::skipped, "the reference has none");
  else
    in.add_check("logits", failed(!totals.logits_wrong.empty()),
                 cat("worst cosine ", cosine_text(totals.logits_worst), ", KL ", totals.kl,
                     " nats, likeliest token the same ", totals.top_same, " of ", totals.top_asked));
}

void judge_schedules(Inspection& in) {
  std::vector<ScheduleResult>& results = in.report.schedules;
  const std::vector<std::size_t> unlike = unlike_first(in, results);
  const bool bits =
      std::all_of(results.begin() + 1, results.end(), [](const auto& r) { return r.same_bits; });
  std::vector<std::string> others;
  for (const std::size_t s : unlike) others.push_back(in.schedules[s].name);
  in.add_check("calls of any length", failed(!unlike.empty()),
               unlike.empty() ? bits ? "the same bits" : "alike to 0.9999"
                              : cat(in.schedules[0].name, " give something else than ", list_text(others)));
  if (std::any_of(in.chained.begin(), in.chained.end(), [](const Run& r) { return !r.finite; }))
    in.add_check("finite numbers", Outcome::failed, "NaN or infinity came out");
}

}  // namespace

void check_layers(Inspection& in) {
  Totals totals;
  for (std::size_t s = 0; s < in.schedules.size(); ++s) {
    in.step(0.75 * static_cast<double>(s) / static_cast<double>(in.schedules.size()), in.schedules[s].name);
    measure(in, s, totals);
  }
  judge_all_layers(in, totals);
  judge_schedules(in);
  note_apart(in);
}

}  // namespace kvtide
