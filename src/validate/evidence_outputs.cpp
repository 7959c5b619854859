// What can be said of a model that gives logits only: which calls and tokens are wrong, and what they depend
// on.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "validate/evidence_twist.h"
#include "validate/inspection.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostOutputTokens = 12;

// The first token whose logits are wrong under a schedule, and the worst cosine; nullopt: none.
std::optional<std::pair<Pos, double>> first_wrong(const Inspection& in, std::size_t s) {
  const auto vocab = static_cast<std::size_t>(in.golden.vocab);
  const Run& run = in.chained[s];
  std::optional<std::pair<Pos, double>> out;
  for (std::size_t i = 0; i < run.known.size(); ++i) {
    if (!in.courses[s].judges(in.layers(), run.known[i])) continue;
    const Likeness found = likeness(std::span(run.logits).subspan(i * vocab, vocab),
                                    std::span(in.courses[s].golden->logits)
                                        .subspan(static_cast<std::size_t>(run.known[i]) * vocab, vocab));
    if (alike(found, in.gate_of(run.known[i])) && !(in.tight && found.relative() > kF32)) continue;
    if (!out) out = std::pair(run.known[i], found.cosine);
    out->second = std::min(out->second, found.cosine);
  }
  return out;
}

// Logits in the right direction, all too long or too short by one factor.
bool scaled(Inspection& in, const std::vector<std::size_t>& wrong, Finding found, const std::string& begins,
            const std::string& ends) {
  const auto vocab = static_cast<std::size_t>(in.golden.vocab);
  double lowest = INFINITY, highest = 0.0;
  for (const std::size_t s : wrong)
    for (std::size_t i = 0; i < in.chained[s].known.size(); ++i) {
      const Likeness one =
          likeness(std::span(in.chained[s].logits).subspan(i * vocab, vocab),
                   std::span(in.courses[s].golden->logits)
                       .subspan(static_cast<std::size_t>(in.chained[s].known[i]) * vocab, vocab));
      if (one.cosine < in.options.gate) return false;
      lowest = std::min(lowest, one.ratio), highest = std::max(highest, one.ratio);
    }
  if (!(highest < 1.02 * lowest)) return false;
  found.cause = "logit_scale";
  found.what = cat(begins, "all logits are ", lowest, " times what they should be", ends);
  found.advice = "Look for a scale or a temperature behind the output matrix.";
  in.report.findings.push_back(std::move(found));
  return true;
}

struct Dependence {
  std::int64_t blind = 0, asked = 0;  // tokens that depend on no earlier one, of those that have any
  std::optional<Pos> future;          // a token that depends on a later one
  // Pairs of a token and a later one of its call; the next one; and how many of them depend.
  std::int64_t pairs = 0, seen = 0, next_pairs = 0, next_seen = 0;
  // As with a mask that shows the whole call, or one token too many. Rows that were mixed up within a call
  // depend on some later tokens and not on others.
  bool sees_ahead() const {
    return future && (seen == pairs || (next_seen == next_pairs && seen == next_seen));
  }
};

// Every token of a short text is replaced in turn.
Dependence measured(Inspection& in, const Schedule& schedule) {
  const auto vocab = static_cast<std::size_t>(in.shape.vocab);
  std::vector<TokenId> text(in.tokens.begin(), in.tokens.begin() + schedule.tokens());
  RunOptions options;
  options.want_rows = false;
  const Run base = run(in.model, text, schedule, options);
  std::vector<char> sees_past(text.size());
  std::set<std::pair<Pos, Pos>> later;  // a token and a later one that it depends on
  Dependence out;
  for (std::size_t j = 0; j < text.size(); ++j) {
    const TokenId kept = text[j];
    text[j] = static_cast<TokenId>((kept + in.shape.vocab / 2) % in.shape.vocab);
    const Run changed = run(in.model, text, schedule, options);
    text[j] = kept;
    for (std::size_t i = 0; i < std::min(base.known.size(), changed.known.size()); ++i) {
      const auto t = static_cast<std::size_t>(base.known[i]);
      const auto a = std::span(base.logits).subspan(i * vocab, vocab),
                 b = std::span(changed.logits).subspan(i * vocab, vocab);
      if (t == j || std::equal(a.begin(), a.end(), b.begin())) continue;
      if (t > j) sees_past[t] = 1;
      if (t < j) later.insert({static_cast<Pos>(t), static_cast<Pos>(j)});
      if (t < j && !out.future && likeness(b, a).relative() > kDependence) out.future = static_cast<Pos>(t);
    }
  }
  const std::vector<Pos> starts = schedule.starts();
  const auto call_of = [&](Pos t) { return std::upper_bound(starts.begin(), starts.end(), t); };
  for (const Pos t : base.known)
    for (Pos j = t + 1; j < std::ssize(text) && call_of(j) == call_of(t); ++j) {
      const bool depends = later.contains({t, j});
      ++out.pairs, out.seen += depends;
      if (j == t + 1) ++out.next_pairs, out.next_seen += depends;
    }
  for (const Pos t : base.known)
    if (t > 0) ++out.asked, out.blind += !sees_past[static_cast<std::size_t>(t)];
  return out;
}

}  // namespace

// Behind layers that are right, or of a model that does not show its layers.
bool explain_outputs(Inspection& in) {
  if (in.golden.logits.empty()) return false;
  std::vector<std::size_t> wrong;
  std::optional<std::size_t> best;
  Finding found;
  for (std::size_t s = 0; s < in.chained.size(); ++s)
    if (const auto first = first_wrong(in, s)) {
      wrong.push_back(s);
      if (!best || first->first < *found.token) found.token = first->first, best = s;
      found.cosine = std::min(found.cosine, first->second);
    }
  if (!best) return false;
  const Schedule& schedule = in.schedules[*best];
  found.check = "logits";
  found.calls = schedule.name;
  const std::string ends = cat(". ", calls_text(in, wrong));
  const bool layers = in.judges_layers();
  const std::string begins = cat(schedule.name, ": the logits are wrong from token ", *found.token, " on",
                                 layers ? ", and what the layers give is right: " : "; ");
  const std::vector<Fit> fits = layers ? fits_of_head(in) : fits_of_model(in);
  for (const Fit& fit : fits) in.report.findings.push_back(finding_of(fit, found, begins, ends));
  if (!fits.empty()) return true;
  if (scaled(in, wrong, found, begins, ends)) return true;
  if (layers) {
    found.cause = "outputs";
    found.what = cat(begins, "no known mistake explains how", ends);
    found.advice = "Look behind the layers, at the last norm and the output matrix.";
    in.report.findings.push_back(std::move(found));
    return true;
  }
  const std::int64_t count =
      std::min<std::int64_t>(kMostOutputTokens, static_cast<std::int64_t>(in.tokens.size()));
  const Dependence seen = measured(in, calls_of(std::min(schedule.calls.front(), count), count));
  const bool ones_wrong =
      std::any_of(wrong.begin(), wrong.end(), [&](std::size_t s) { return in.schedules[s].longest() == 1; });
  found.what = begins;
  // In long calls a mask that shows too much and rows that changed places look different.
  const auto ahead = [&] {
    std::int64_t call = 1;
    for (const std::size_t s : wrong) call = std::max(call, in.schedules[s].longest());
    return measured(in, calls_of(std::min(call, count), count)).sees_ahead();
  };
  if (seen.future && !ones_wrong && ahead()) {
    found.cause = "not_causal";
    found.what +=
        cat("what comes out at token ", *seen.future, " changes when a later token of its call is changed");
    found.advice = kCausal;
  } else if (seen.blind > 0) {
    found.cause = "past_unseen";
    found.what += cat("changing earlier tokens changes nothing for ", seen.blind, " of ", seen.asked,
                      " tokens: they know no past");
    found.advice = kPastIsGone;
  } else {
    found.cause = "outputs";
    found.what += seen.future && !ones_wrong
                      ? cat("token ", *seen.future,
                            " depends on a later token of its call, but not as with a mask "
                            "that shows later tokens: rows of a call may change places")
                      : "every token depends on all earlier ones and on no later one, so the past is seen";
    found.advice =
        "Let predict() give the residual stream (hidden) and rows() the state, and the report will name "
        "layer and cause.";
  }
  found.what += ends;
  in.report.findings.push_back(std::move(found));
  return true;
}

}  // namespace kvtide
