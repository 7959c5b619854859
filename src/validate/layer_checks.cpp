#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "validate/inspection.h"
#include "validate/logits_check.h"

namespace kvtide {
namespace {

bool is_at(const NearTie& tie, const Inspection& in, int layer, Pos token) {
  return tie.layer == layer && tie.token == token && tie.margin < tie_of(in.options.gate);
}

// What single results of coarse arithmetic must reach.
double stray_gate(const Inspection& in) {
  const double gate = in.options.gate;
  return in.options.apart_gate < gate ? in.options.apart_gate : 1.0 - 4.0 * (1.0 - gate);
}

// What a layer's own result must reach. Where a router hesitates, errors of coarse arithmetic change the share of
// its expert, and that may change the result as much as tokens that are set apart may stray.
double gate_at(const Inspection& in, int layer, Pos token) {
  const bool hesitates = is_coarse(in.options.gate) &&
                         std::any_of(in.golden.ties.begin(), in.golden.ties.end(),
                                     [&](const NearTie& tie) { return is_at(tie, in, layer, token); });
  return hesitates ? stray_gate(in) : in.gate_of(token);
}

// What a router that took another expert of a near tie would have given, if that is what was found.
const NearTie* tie_at(const Inspection& in, int layer, Pos token, std::span<const float> was_in,
                      std::span<const float> found) {
  const double gate = gate_at(in, layer, token);
  for (const NearTie& tie : in.golden.ties)
    if (is_at(tie, in, layer, token) &&
        alike(likeness_of_change(was_in, found, was_in, tie.stream, in.options.stream_rounding), gate))
      return &tie;
  return nullptr;
}

LayerTable table_of(Inspection& in, std::size_t schedule, const Run& run, bool isolated) {
  LayerTable table{in.golden.layers, run.tokens, {}, {}, {}, {}};
  const Golden& golden = in.wanted(schedule, isolated);
  for (int layer = 0; layer < in.layers(); ++layer)
    for (Pos t = 0; t < run.tokens; ++t) {
      const bool judges = isolated || in.courses[schedule].judges(layer, t);
      const auto wanted_in = golden.stream(layer, t);
      const auto was_in = isolated ? wanted_in : run.stream(layer, t, golden.width);
      const auto found = run.stream(layer + 1, t, golden.width);
      std::span<const float> wanted = golden.stream(layer + 1, t);
      Likeness change = likeness_of_change(was_in, found, wanted_in, wanted, in.options.stream_rounding);
      if (isolated && !alike(change, gate_at(in, layer, t)))
        if (const NearTie* tie = tie_at(in, layer, t, was_in, found)) {
          wanted = tie->stream;
          change = likeness_of_change(was_in, found, wanted_in, wanted, in.options.stream_rounding);
          in.ties.insert({layer, t});
        }
      Likeness sum = likeness(found, wanted);
      if (!judges) change = sum = Likeness{};
      table.change_cosine.push_back(static_cast<float>(change.cosine));
      table.change_error.push_back(static_cast<float>(change.max_abs));
      table.sum_cosine.push_back(static_cast<float>(sum.cosine));
      table.sum_error.push_back(static_cast<float>(sum.max_abs));
      // In a chain the errors of all layers below add up: only their sum is held against the gate.
      const Likeness& judged = isolated || !in.isolates() ? change : sum;
      if (!alike(judged, isolated ? gate_at(in, layer, t) : in.gate_of(t)))
        in.differences.push_back({schedule, isolated, layer, t, judged.cosine});
    }
  return table;
}

// The schedules against the first: the same model must not depend on how a text is cut.
std::vector<std::size_t> unlike_first(const Inspection& in, std::vector<ScheduleResult>& results) {
  std::vector<std::size_t> out;
  const Run& first = in.chained.front();
  const auto vocab = static_cast<std::size_t>(in.shape.vocab);
  for (std::size_t s = 1; s < in.chained.size(); ++s) {
    const Run& other = in.chained[s];
    // Cut otherwise, a router may take another expert of a near tie.
    const bool comparable =
        in.courses[s].golden == in.courses.front().golden && !in.courses[s].open && !in.courses.front().open;
    bool same = true, bits = true;
    for (std::size_t i = 0, j = 0; i < first.known.size() && j < other.known.size();) {
      if (first.known[i] != other.known[j]) {
        ++(first.known[i] < other.known[j] ? i : j);
        continue;
      }
      const auto a = std::span(other.logits).subspan(j * vocab, vocab),
                 b = std::span(first.logits).subspan(i * vocab, vocab);
      const bool equal = std::equal(a.begin(), a.end(), b.begin());
      bits = bits && equal;
      same = same && (equal || likeness(a, b).cosine >= 0.9999);
      ++i, ++j;
    }
    if (in.shape.gives_hidden)
      for (std::int64_t layer = 0; layer <= in.layers(); ++layer)
        for (Pos t = 0; t < std::min(first.tokens, other.tokens); ++t) {
          const auto a = other.stream(layer, t, in.shape.width), b = first.stream(layer, t, in.shape.width);
          const bool equal = std::equal(a.begin(), a.end(), b.begin());
          bits = bits && equal;
          same = same && (equal || likeness(a, b).cosine >= 0.9999);
        }
    results[s].same_bits = bits;
    if (!same && comparable) out.push_back(s);
  }
  return out;
}

// Layers that are right one by one may part from the reference in a chain, behind a router whose choice was
// nearly even: rounding adds up on the way to it. From that place on the chain tells nothing more of the layers.
std::optional<RouterChoice> parted_at_a_tie(const Inspection& in, std::size_t s, const Golden& golden) {
  std::optional<RouterChoice> parted;
  for (const Difference& d : in.differences) {
    if (d.schedule != s) continue;
    if (d.isolated || d.layer < 0) return std::nullopt;
    if (!parted) parted = RouterChoice{d.layer, d.token, 0};
    parted->token = std::min(parted->token, d.token);
  }
  if (!parted) return std::nullopt;
  const bool even =
      coarse_routers(in) || std::any_of(golden.ties.begin(), golden.ties.end(), [&](const NearTie& tie) {
        return tie.layer <= parted->layer && tie.token <= parted->token;
      });
  return even ? parted : std::nullopt;
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
  std::map<Pos, LogitsVerdict> first_logits = {};
};

// In coarse arithmetic single results stray: one in a hundred may, as far as tokens that are set apart may.
void forgive_strays(Inspection& in, std::size_t s, const LayerTable& table) {
  const bool asked_for = in.options.apart_gate >= in.options.gate && in.golden.ties.empty();
  if (!is_coarse(in.options.gate) || asked_for) return;
  const auto strays = [&](const Difference& d) { return d.schedule == s && d.isolated; };
  const auto count = std::count_if(in.differences.begin(), in.differences.end(), strays);
  const bool far = std::any_of(in.differences.begin(), in.differences.end(),
                               [&](const Difference& d) { return strays(d) && d.cosine < stray_gate(in); });
  if (!far && 100 * count <= std::ssize(table.change_cosine)) std::erase_if(in.differences, strays);
}

// A cut that gave the bits of the first one in a chain gives them layer by layer, too: it is not read again.
Run isolated_run(Inspection& in, std::size_t s) {
  if (s > 0 && same_bits(in.chained[s], in.chained[0], in.shape))
    if (auto cut = cut_to(in.isolated[0], in.chained[s].tokens, in.shape)) {
      cut->schedule = in.schedules[s];
      return std::move(*cut);
    }
  RunOptions options;
  options.feed = &in.golden;
  options.want_logits = false;
  return run(in.model, in.tokens, in.schedules[s], options);
}

void measure(Inspection& in, std::size_t s, Totals& totals) {
  const Schedule& schedule = in.schedules[s];
  ScheduleResult& result = in.report.schedules.emplace_back();
  result.name = schedule.name;
  result.calls = schedule.calls;
  RunOptions options;
  options.want_logits = !in.golden.logits.empty() || !in.judges_layers();
  in.chained.push_back(run(in.model, in.tokens, schedule, options));
  if (in.isolates()) {
    in.isolated.push_back(isolated_run(in, s));
    result.isolated = table_of(in, s, in.isolated.back(), true);
    forgive_strays(in, s, result.isolated);
    totals.isolated_worst = std::min(totals.isolated_worst, worst_of(result.isolated.change_cosine));
  }
  Run& chained = in.chained.back();
  in.courses.push_back(
      s > 0 ? Course{in.courses.back().golden, in.courses.back().choices, {}}
            : Course{std::shared_ptr<const Golden>(std::shared_ptr<void>(), &in.golden), {}, {}});
  if (in.judges_layers())
    in.courses.back() = follow(in.reference, in.tokens, in.courses.back(), chained, in.options.gate);
  if (!chained.refusal.empty()) totals.refused.push_back(cat(schedule.name, ": ", chained.refusal));
  if (in.judges_layers()) {
    for (Pos t = 0; t < chained.tokens; ++t) {
      const Likeness embedding = likeness(chained.stream(0, t, in.shape.width), in.golden.stream(0, t));
      if (!alike(embedding, in.gate_of(t))) in.differences.push_back({s, false, -1, t, embedding.cosine});
    }
    result.chained = table_of(in, s, chained, false);
    if (const auto parted = in.isolates() ? parted_at_a_tie(in, s, *in.courses[s].golden) : std::nullopt) {
      RouterChoice& open = in.courses[s].open ? *in.courses[s].open : in.courses[s].open.emplace(*parted);
      open.layer = std::min(open.layer, parted->layer);
      open.token = std::min(open.token, parted->token);
      std::erase_if(in.differences, [&](const Difference& d) { return d.schedule == s; });
      result.chained = table_of(in, s, chained, false);
    }
    totals.sum_worst = std::min(totals.sum_worst, worst_of(result.chained.sum_cosine));
  }
  if (!in.golden.logits.empty() && !judge_logits(in, s, chained, result, totals.first_logits))
    totals.logits_wrong.push_back(schedule.name);
  totals.kl = std::max(totals.kl, result.kl_mean);
  totals.logits_worst = std::min(totals.logits_worst, result.logits_cosine);
  totals.top_same += result.top_same;
  totals.top_asked += result.top_asked;
}

Outcome failed(bool wrong) { return wrong ? Outcome::failed : Outcome::passed; }

std::set<std::pair<int, Pos>> places_of(const std::vector<Course>& courses) {
  std::set<std::pair<int, Pos>> out;
  for (const Course& course : courses)
    for (const RouterChoice& choice : course.choices) out.insert({choice.layer, choice.token});
  return out;
}

std::string ties_text(const std::set<std::pair<int, Pos>>& places) {
  if (places.empty()) return "";
  return cat("; routers took the other expert of a near tie at ", places.size(),
             places.size() == 1 ? " place" : " places");
}

void note_ties(Inspection& in) {
  std::set<std::pair<int, Pos>> places = places_of(in.courses);
  for (const Course& course : in.courses)
    if (course.open) places.insert({course.open->layer, course.open->token});
  places.insert(in.ties.begin(), in.ties.end());
  if (places.empty()) return;
  const bool open =
      std::any_of(in.courses.begin(), in.courses.end(), [](const Course& c) { return c.open.has_value(); });
  in.report.notes.push_back(
      {"router_tie", cat("at ", places.size(), places.size() == 1 ? " place" : " places", ", first in layer ",
                         places.begin()->first, " at token ", places.begin()->second,
                         ", a router preferred an expert by so little that rounding decides, and the model "
                         "took the other one. ",
                         open ? "Every layer by itself is right; where the chain parts from the reference "
                                "behind such a place it is "
                                "judged by the KL divergence of its logits only"
                              : "What follows was compared with the reference along the same experts")});
}

void judge_all_layers(Inspection& in, const Totals& totals) {
  const auto differs = [&](bool isolated) {
    return std::any_of(in.differences.begin(), in.differences.end(),
                       [&](const Difference& d) { return d.isolated == isolated; });
  };
  if (!totals.refused.empty()) in.add_check("reading", Outcome::failed, list_text(totals.refused));
  if (in.isolates())
    in.add_check("isolated layers", failed(differs(true)),
                 cat("worst cosine of a change ", cosine_text(totals.isolated_worst), ties_text(in.ties)));
  else
    in.add_check(
        "isolated layers", Outcome::skipped,
        in.golden.hidden.empty() ? "the reference has no layers" : "layers of this model cannot be fed");
  if (in.judges_layers())
    in.add_check(
        "chained layers", failed(differs(false)),
        cat("worst cosine of a sum ", cosine_text(totals.sum_worst), ties_text(places_of(in.courses))));
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
  note_ties(in);
}

}  // namespace kvtide
