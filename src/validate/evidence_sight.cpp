// Causes that show in what a token sees: the rows are right, and what attention makes of them is not. Which
// earlier tokens a result depends on is measured by changing them one by one; what the wrong result equals is
// asked of the reference, which can compute a layer in the ways in which it is often computed wrongly.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "validate/evidence_twist.h"
#include "validate/inspection.h"
#include "validate/wrong_layer.h"

namespace kvtide {
namespace {

constexpr std::int64_t kSightTokens = 14;      // of the measured text, at least
constexpr std::int64_t kMostSightTokens = 64;  // and at most
constexpr std::int64_t kMostSightRuns = 24;    // one for each token that is changed

// By how much what the layer gives for token t changes with its input for token j; -1: not asked.
using Sensitivity = std::vector<std::vector<double>>;

Sensitivity measured_sight(const Inspection& in, int layer, const Schedule& schedule) {
  const std::int64_t tokens = schedule.tokens(), width = in.golden.width;
  RunOptions options;
  options.want_rows = false;
  Golden fed;
  fed.tokens.assign(in.golden.tokens.begin(), in.golden.tokens.begin() + tokens);
  fed.layers = in.golden.layers;
  fed.width = width;
  for (std::int64_t l = 0; l <= in.golden.layers; ++l) {
    const auto first = in.golden.stream(l, 0);
    fed.hidden.insert(fed.hidden.end(), first.data(), first.data() + tokens * width);
  }
  options.feed = &fed;
  const auto text = std::span<const TokenId>(fed.tokens);
  const Run base = run(in.model, text, schedule, options);
  Sensitivity depends(static_cast<std::size_t>(tokens),
                      std::vector<double>(static_cast<std::size_t>(tokens), -1.0));
  const std::int64_t step = (tokens + kMostSightRuns - 1) / kMostSightRuns;
  for (Pos j = (tokens - 1) % step; j < tokens; j += step) {
    const std::vector<float> kept = fed.hidden;
    for (std::int64_t l = 0; l < in.golden.layers; ++l) {
      const auto row = fed.hidden.begin() + (l * tokens + j) * width;
      std::reverse(row, row + width);
    }
    const Run changed = run(in.model, text, schedule, options);
    fed.hidden = kept;
    for (Pos t = 0; t < std::min(base.tokens, changed.tokens); ++t) {
      const auto a = changed.stream(layer + 1, t, width), b = base.stream(layer + 1, t, width);
      depends[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)] = likeness(a, b).relative();
    }
  }
  return depends;
}

struct Sight {
  std::string cause, what, advice;
  std::optional<Pos> token;
};

// What the measured dependencies say by themselves.
Sight read_sight(const Sensitivity& depends, std::optional<std::int64_t> window, bool ones_wrong) {
  const auto tokens = static_cast<Pos>(depends.size());
  std::optional<Pos> future, blind;
  std::int64_t alone = 0, asked = 0;
  for (Pos t = 0; t < tokens; ++t) {
    bool sees_past = false, asked_past = false;
    for (Pos j = 0; j < tokens; ++j) {
      const double change = depends[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)];
      if (change < 0.0) continue;
      asked_past = asked_past || j < t;
      const bool sees = change > 0.0;
      if (change > kDependence && j > t && !future) future = t;
      if (sees && j < t) sees_past = true;
      if (!sees && j < t && (!window || j > t - *window) && !blind) blind = t;
    }
    if (asked_past) ++asked, alone += !sees_past;
  }
  // Where calls of 1 are wrong, too, what later tokens do is not the reason.
  if (future && !ones_wrong)
    return {"not_causal", cat("token ", *future, " changes when a later token of its call is changed"),
            kCausal, future};
  if (alone > 0)
    return {"mask_too_short",
            cat("changing any earlier token changes nothing for ", alone, " of ", asked,
                " tokens: they see themselves only, although the state holds the earlier rows"),
            "The mask must be as long as all that is active, past and new, not as long as the call.", blind};
  if (blind) {
    std::string rows;
    for (Pos j = 0; j < *blind; ++j)
      if (depends[static_cast<std::size_t>(*blind)][static_cast<std::size_t>(j)] == 0.0)
        rows += cat(rows.empty() ? "" : ", ", j);
    return {"rows_hidden",
            cat("token ", *blind, " does not change when these earlier tokens are changed: ", rows),
            "The mask hides rows that should be seen.", blind};
  }
  return {};
}

// What changing single tokens shows of what the layer sees.
Sight sight_of(Inspection& in, const WrongLayer& wrong) {
  if (!wrong.isolated) return {};
  const auto text = static_cast<std::int64_t>(in.tokens.size());
  const std::int64_t chunk = in.schedules[wrong.telling(in)].calls.front();
  // As far as the first wrong token, so that what it does not see shows.
  const Pos first = wrong.at.at(wrong.telling(in)).first;
  const std::int64_t length =
      std::min({std::max<std::int64_t>(kSightTokens, first + 2), kMostSightTokens, text});
  const Schedule small = calls_of(std::min(chunk, kSightTokens), length);
  const auto of_ones = wrong.schedules();
  const bool ones_wrong = std::any_of(of_ones.begin(), of_ones.end(),
                                      [&](std::size_t s) { return in.schedules[s].longest() == 1; });
  const StateLayer& layer = in.shape.layers[static_cast<std::size_t>(wrong.layer)];
  Sight sight = read_sight(measured_sight(in, wrong.layer, small), layer.window, ones_wrong);
  // A layer without rows sees by what it is handed.
  if (sight.cause == "mask_too_short" && in.shape.gives_rows && layer.kv_heads == 0) {
    sight.cause = "recurrent_state_dropped";
    sight.what =
        "changing any earlier token changes nothing: this layer keeps no rows, and nothing is handed on";
    sight.advice = "What a layer carries goes from call to call: keep it in the state.";
  }
  return sight;
}

}  // namespace

bool explain_sight(Inspection& in) {
  const auto wrong = lowest_wrong(in, true);
  if (!wrong) return false;
  const std::vector<Fit> fits = fits_of_layer(in, *wrong);
  // A known mistake that does not depend on the calls needs no further proof.
  const bool calls_matter = fits.empty() || fits.front().mistake.of_calls;
  const Sight sight = calls_matter ? sight_of(in, *wrong) : Sight{};
  if (fits.empty() && sight.what.empty()) return false;
  const std::size_t s = wrong->telling(in);
  const auto& [first_token, worst_cosine] = wrong->at.at(s);
  Finding found;
  found.check = wrong->isolated ? "isolated layers" : "chained layers";
  found.layer = wrong->layer;
  found.token = first_token;
  found.calls = in.schedules[s].name;
  found.cosine = worst_cosine;
  const std::string rows =
      in.judges_rows() && in.row_differences.empty() ? "the rows of the state are right; " : "";
  const std::string begins =
      cat("in layer ", wrong->layer, ", ", in.schedules[s].name, ", from token ", first_token, " on: ", rows);
  const std::string ends = cat(". ", calls_text(in, wrong->schedules()), "; ",
                               layers_text({wrong->layers.begin(), wrong->layers.end()}, in.layers()),
                               wrong->layers.size() == 1 ? " is" : " are", " touched");
  const std::string measured = sight.what.empty() ? "" : cat("; measured: ", sight.what);
  for (const Fit& fit : fits) in.report.findings.push_back(finding_of(fit, found, begins, measured + ends));
  if (!fits.empty()) return true;
  found.cause = sight.cause;
  found.what = cat(begins, sight.what, ends);
  found.advice = sight.advice;
  in.report.findings.push_back(std::move(found));
  return true;
}

}  // namespace kvtide
