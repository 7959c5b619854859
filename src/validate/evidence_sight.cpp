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
#include "validate/inspection.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostSightTokens = 14;  // of the measured text: one run for each

struct Guess {
  const char* cause;
  std::string what;
  const char* advice;
  Twist twist;
};

std::vector<Guess> guesses(const Inspection& in, int layer, const Schedule& schedule) {
  const std::vector<Pos> starts = schedule.starts();
  const auto window = in.shape.layers[static_cast<std::size_t>(layer)].window;
  const auto start_of = [starts](Pos t) { return *(std::upper_bound(starts.begin(), starts.end(), t) - 1); };
  const auto end_of = [starts](Pos t) { return *std::upper_bound(starts.begin(), starts.end(), t); };
  const auto usual = [window](Pos t, Pos row) { return row <= t && (!window || row > t - *window); };
  const std::int64_t capacity = schedule.tokens() + 8;
  std::vector<Guess> out = {
      {"mask_too_short",
       "every token of a call of 1 sees its own row and no other",
       "The mask must be as long as all that is active, past and new, not as long as the call.",
       {.visible =
            [=](Pos t, Pos row) {
              return end_of(t) - start_of(t) == 1 && t > 0 ? row == t : usual(t, row);
            }}},
      {"mask_too_short",
       "every token sees the rows of its own call and none of earlier calls",
       "The mask must be as long as all that is active, past and new, not as long as the call.",
       {.visible = [=](Pos t, Pos row) { return usual(t, row) && row >= start_of(t); }}},
      {"mask_too_short",
       "tokens of calls of 1 see the first row only",
       "The mask must be as long as all that is active, past and new, not as long as the call.",
       {.visible = [=](Pos t, Pos row) { return end_of(t) - start_of(t) == 1 ? row == 0 : usual(t, row); }}},
      {"own_row_hidden",
       "no token sees its own row",
       "Attention reads the state after the token was written into it.",
       {.visible = [=](Pos t, Pos row) { return usual(t, row) && (row != t || t == 0); }}},
      {"first_row_hidden",
       "no token but the first sees row 0",
       "The visible slots begin at 0, not at 1.",
       {.visible = [=](Pos t, Pos row) { return usual(t, row) && (row > 0 || t == 0); }}},
      {"not_causal",
       "tokens see the later tokens of their own call",
       kCausal,
       {.visible = [=](Pos t, Pos row) { return usual(t, row) || (row > t && row < end_of(t)); }}},
      {"stale_rows",
       cat("rows of zeros that no token has written take part in the softmax, as if all ", capacity,
           " slots were visible"),
       "The mask must hide every slot that is not written yet.",
       {.empty_rows = [=](Pos t) { return capacity - 1 - t; }}},
      {"query_position",
       "queries are rotated one position too far, keys are right",
       "Queries and keys of a token are rotated for the same position.",
       {.query_shift = 1}},
      {"query_position",
       "queries are rotated one position too little, keys are right",
       "Queries and keys of a token are rotated for the same position.",
       {.query_shift = -1}},
      {"heads_interleaved",
       "what attention gives is laid out as [heads, tokens] and read as [tokens, heads] within a call",
       "Transpose [heads, tokens, dim] to [tokens, heads, dim] before the output projection; with one token "
       "a call both "
       "are the same, which is why calls of 1 look right.",
       {.mixed_chunks = starts}},
  };
  if (window) {
    out.push_back({"window",
                   "the window is one row longer than it should be",
                   "A window of w positions holds the token itself and w - 1 earlier ones.",
                   {.visible = [=](Pos t, Pos row) { return row <= t && row >= t - *window; }}});
    out.push_back({"window",
                   "the window is one row shorter than it should be",
                   "A window of w positions holds the token itself and w - 1 earlier ones.",
                   {.visible = [=](Pos t, Pos row) { return row <= t && row > t - *window + 1; }}});
    out.push_back({"window",
                   "the window is ignored",
                   "This layer sees a sliding window only.",
                   {.visible = [](Pos t, Pos row) { return row <= t; }}});
  }
  return out;
}

// What is left of the difference to the reference when a twisted layer is taken for it.
struct Explained {
  double left = 0.0, all = 0.0;
  double share() const { return all > 0.0 ? 1.0 - left / all : 0.0; }
};

void explain_by(Explained& sum, const Inspection& in, const Run& run, int layer,
                const std::vector<float>& twisted) {
  const std::int64_t width = in.golden.width;
  for (Pos t = 0; t < run.tokens; ++t) {
    const auto found = run.stream(layer + 1, t, width), right = in.golden.stream(layer + 1, t);
    for (std::int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double value = static_cast<double>(found[at]);
      const double other = value - static_cast<double>(twisted[static_cast<std::size_t>(t * width + i)]);
      const double wrong = value - static_cast<double>(right[at]);
      sum.left += other * other;
      sum.all += wrong * wrong;
    }
  }
}

// depends[t][j]: whether what the layer gives for token t changes with its input for token j.
std::vector<std::vector<char>> measured_sight(const Inspection& in, int layer, const Schedule& schedule) {
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
  std::vector<std::vector<char>> depends(static_cast<std::size_t>(tokens),
                                         std::vector<char>(static_cast<std::size_t>(tokens)));
  for (Pos j = 0; j < tokens; ++j) {
    const std::vector<float> kept = fed.hidden;
    for (std::int64_t l = 0; l < in.golden.layers; ++l) {
      const auto row = fed.hidden.begin() + (l * tokens + j) * width;
      std::reverse(row, row + width);
    }
    const Run changed = run(in.model, text, schedule, options);
    fed.hidden = kept;
    for (Pos t = 0; t < std::min(base.tokens, changed.tokens); ++t) {
      const auto a = changed.stream(layer + 1, t, width), b = base.stream(layer + 1, t, width);
      depends[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)] =
          !std::equal(a.begin(), a.end(), b.begin());
    }
  }
  return depends;
}

struct Sight {
  std::string cause, what, advice;
  std::optional<Pos> token;
};

// What the measured dependencies say by themselves.
Sight read_sight(const std::vector<std::vector<char>>& depends, const Schedule& schedule,
                 std::optional<std::int64_t> window) {
  const auto tokens = static_cast<Pos>(depends.size());
  const std::vector<Pos> starts = schedule.starts();
  std::optional<Pos> future, blind;
  std::int64_t alone = 0, asked = 0;
  for (Pos t = 0; t < tokens; ++t) {
    bool sees_past = false;
    for (Pos j = 0; j < tokens; ++j) {
      const bool sees = depends[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)] != 0;
      if (sees && j > t && !future) future = t;
      if (sees && j < t) sees_past = true;
      if (!sees && j < t && (!window || j > t - *window) && !blind) blind = t;
    }
    if (t > 0) ++asked, alone += !sees_past;
  }
  if (future)
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
      if (!depends[static_cast<std::size_t>(*blind)][static_cast<std::size_t>(j)])
        rows += cat(rows.empty() ? "" : ", ", j);
    return {"rows_hidden",
            cat("token ", *blind, " does not change when these earlier tokens are changed: ", rows),
            "The mask hides rows that should be seen.", blind};
  }
  return {};
}

// The lowest layer that is wrong, and where.
struct WrongLayer {
  int layer = 0;
  bool isolated = false;
  std::map<std::size_t, std::pair<Pos, double>> at;  // schedule: first token, worst cosine
  std::set<int> layers;                              // all that are wrong

  const std::vector<Run>& runs(const Inspection& in) const { return isolated ? in.isolated : in.chained; }
  std::vector<std::size_t> schedules() const {
    std::vector<std::size_t> out;
    for (const auto& [schedule, worst] : at) out.push_back(schedule);
    return out;
  }
  // The schedule that tells most: where it begins first, and of those the one with the longest calls.
  std::size_t telling(const Inspection& in) const {
    return std::min_element(at.begin(), at.end(),
                            [&](const auto& a, const auto& b) {
                              return std::pair(a.second.first, -in.schedules[a.first].longest()) <
                                     std::pair(b.second.first, -in.schedules[b.first].longest());
                            })
        ->first;
  }
};

std::optional<WrongLayer> lowest_wrong(const Inspection& in) {
  WrongLayer wrong;
  wrong.isolated = in.isolates();
  wrong.layer = in.layers();
  for (const Difference& d : in.differences)
    if (d.isolated == wrong.isolated && d.layer >= 0) wrong.layer = std::min(wrong.layer, d.layer);
  if (wrong.layer == in.layers() || !in.judges_layers()) return std::nullopt;
  for (const Difference& d : in.differences) {
    if (d.isolated != wrong.isolated || d.layer < 0) continue;
    wrong.layers.insert(d.layer);
    if (d.layer != wrong.layer) continue;
    auto& at = wrong.at.emplace(d.schedule, std::pair(d.token, d.cosine)).first->second;
    at = {std::min(at.first, d.token), std::min(at.second, d.cosine)};
  }
  return wrong;
}

// The guess that explains most of the difference, and its share of it; nullopt when none explains nine tenths.
// One mistake should explain all that is wrong. In a chain the lowest wrong layer still gets what is right, or
// nearly so.
std::optional<std::pair<Guess, double>> best_guess(Inspection& in, const WrongLayer& wrong) {
  std::vector<Guess> asked = guesses(in, wrong.layer, in.schedules[wrong.at.begin()->first]);
  std::vector<Explained> shares(asked.size());
  for (const auto& [s, worst] : wrong.at) {
    const Run& run = wrong.runs(in)[s];
    const auto input = in.golden.stream(wrong.layer, 0);
    const std::vector<Guess> ways = guesses(in, wrong.layer, in.schedules[s]);
    for (std::size_t g = 0; g < ways.size(); ++g) {
      const auto twisted = in.reference.twisted(
          wrong.layer, {input.data(), static_cast<std::size_t>(run.tokens * in.golden.width)}, ways[g].twist);
      if (!twisted) break;
      explain_by(shares[g], in, run, wrong.layer, *twisted);
    }
  }
  std::optional<std::size_t> best;
  double best_share = 0.9;
  for (std::size_t g = 0; g < asked.size(); ++g)
    if (shares[g].share() > best_share + 1e-6) best_share = shares[g].share(), best = g;
  if (!best) return std::nullopt;
  return std::pair(std::move(asked[*best]), best_share);
}

// What changing single tokens shows of what the layer sees.
Sight sight_of(Inspection& in, const WrongLayer& wrong) {
  if (!wrong.isolated) return {};
  const auto text = static_cast<std::int64_t>(in.tokens.size());
  const std::int64_t chunk = in.schedules[wrong.telling(in)].calls.front();
  const Schedule small =
      calls_of(std::min(chunk, kMostSightTokens), std::min<std::int64_t>(kMostSightTokens, text));
  return read_sight(measured_sight(in, wrong.layer, small), small,
                    in.shape.layers[static_cast<std::size_t>(wrong.layer)].window);
}

}  // namespace

bool explain_sight(Inspection& in) {
  const auto wrong = lowest_wrong(in);
  if (!wrong) return false;
  const auto best = best_guess(in, *wrong);
  const Sight sight = sight_of(in, *wrong);
  if (!best && sight.what.empty()) return false;
  const std::size_t s = wrong->telling(in);
  const auto& [first_token, worst_cosine] = wrong->at.at(s);
  Finding found;
  found.cause = best ? best->first.cause : sight.cause;
  found.check = wrong->isolated ? "isolated layers" : "chained layers";
  found.layer = wrong->layer;
  found.token = first_token;
  found.calls = in.schedules[s].name;
  found.cosine = worst_cosine;
  const std::string rows =
      in.judges_rows() && in.row_differences.empty() ? "the rows of the state are right; " : "";
  found.what =
      cat("in layer ", wrong->layer, ", ", in.schedules[s].name, ", from token ", first_token, " on: ", rows);
  if (best)
    found.what += cat(best->first.what, ": the reference computed that way explains ",
                      share_text(best->second), " of the difference");
  if (!sight.what.empty()) found.what += cat(best ? "; measured: " : "", sight.what);
  found.what += cat(". ", calls_text(in, wrong->schedules()), "; ",
                    layers_text({wrong->layers.begin(), wrong->layers.end()}, in.layers()),
                    wrong->layers.size() == 1 ? " is" : " are", " touched");
  found.advice = best ? best->first.advice : sight.advice;
  in.report.findings.push_back(std::move(found));
  return true;
}

}  // namespace kvtide
