// What can be said of a model that gives logits only: which calls and tokens are wrong, and what they depend
// on.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "validate/inspection.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostOutputTokens = 12;

// The first token whose logits are wrong under a schedule; nullopt: none.
std::optional<Pos> first_wrong(const Inspection& in, const Run& run) {
  const auto vocab = static_cast<std::size_t>(in.golden.vocab);
  for (std::size_t i = 0; i < run.known.size(); ++i)
    if (likeness(std::span(run.logits).subspan(i * vocab, vocab),
                 std::span(in.golden.logits).subspan(static_cast<std::size_t>(run.known[i]) * vocab, vocab))
            .cosine < in.gate_of(run.known[i]))
      return run.known[i];
  return std::nullopt;
}

struct Dependence {
  std::int64_t blind = 0, asked = 0;  // tokens that depend on no earlier one, of those that have any
  std::optional<Pos> future;          // a token that depends on a later one
};

// Every token of a short text is replaced in turn.
Dependence measured(Inspection& in, const Schedule& schedule) {
  const auto vocab = static_cast<std::size_t>(in.shape.vocab);
  std::vector<TokenId> text(in.tokens.begin(), in.tokens.begin() + schedule.tokens());
  RunOptions options;
  options.want_rows = false;
  const Run base = run(in.model, text, schedule, options);
  std::vector<char> sees_past(text.size());
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
      if (t < j && !out.future) out.future = static_cast<Pos>(t);
    }
  }
  for (const Pos t : base.known)
    if (t > 0) ++out.asked, out.blind += !sees_past[static_cast<std::size_t>(t)];
  return out;
}

}  // namespace

bool explain_outputs(Inspection& in) {
  if (in.golden.logits.empty()) return false;
  std::vector<std::size_t> wrong;
  std::optional<std::size_t> best;
  std::optional<Pos> token;
  for (std::size_t s = 0; s < in.chained.size(); ++s)
    if (const auto first = first_wrong(in, in.chained[s])) {
      wrong.push_back(s);
      if (!token || *first < *token) token = first, best = s;
    }
  if (!best) return false;
  const Schedule& schedule = in.schedules[*best];
  const std::int64_t count =
      std::min<std::int64_t>(kMostOutputTokens, static_cast<std::int64_t>(in.tokens.size()));
  const Dependence seen = measured(in, calls_of(std::min(schedule.calls.front(), count), count));
  Finding found;
  found.check = "logits";
  found.token = token;
  found.calls = schedule.name;
  found.cosine = in.report.schedules[*best].logits_cosine;
  found.what = cat(schedule.name, ": the logits are wrong from token ", *token, " on; ");
  if (seen.future) {
    found.cause = "not_causal";
    found.what +=
        cat("what comes out at token ", *seen.future, " changes when a later token of its call is changed");
    found.advice = kCausal;
  } else if (seen.blind > 0) {
    found.cause = "past_unseen";
    found.what += cat("changing earlier tokens changes nothing for ", seen.blind, " of ", seen.asked,
                      " tokens: they know no past");
    found.advice =
        "Either the mask hides the past (it must be as long as all that is active) or the state does not "
        "keep it (one "
        "state for all calls): rows() would tell which.";
  } else {
    found.cause = "outputs";
    found.what += "every token depends on all earlier ones and on no later one, so the past is seen";
    found.advice =
        "Let predict() give the residual stream (hidden) and rows() the state, and the report will name "
        "layer and cause.";
  }
  found.what += cat(". ", calls_text(in, wrong));
  in.report.findings.push_back(std::move(found));
  return true;
}

}  // namespace kvtide
