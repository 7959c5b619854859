// Causes that show in what a token sees: the rows are right, and what attention makes of them is not. Which
// earlier tokens a result depends on is measured by changing them one by one; what the wrong result equals is
// asked of the reference, which can compute a layer in the ways in which it is often computed wrongly.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

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
       "Column t of a call hides the slots behind n + t; the mask of a call is a triangle, not a rectangle.",
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
            "Column t of a call hides the slots behind n + t.", future};
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

}  // namespace

bool explain_sight(Inspection& in) {
  const bool isolated = in.isolates();
  int layer = in.layers();
  for (const Difference& d : in.differences)
    if (d.isolated == isolated && d.layer >= 0) layer = std::min(layer, d.layer);
  if (layer == in.layers() || !in.judges_layers()) return false;
  std::map<std::size_t, std::pair<Pos, double>> wrong;  // schedule: first token, worst cosine
  std::set<int> layers;
  for (const Difference& d : in.differences) {
    if (d.isolated != isolated || d.layer < 0) continue;
    layers.insert(d.layer);
    if (d.layer != layer) continue;
    auto& at = wrong.emplace(d.schedule, std::pair(d.token, d.cosine)).first->second;
    at = {std::min(at.first, d.token), std::min(at.second, d.cosine)};
  }
  const std::vector<Run>& runs = isolated ? in.isolated : in.chained;
  std::vector<std::size_t> wrong_schedules;
  for (const auto& [schedule, at] : wrong) wrong_schedules.push_back(schedule);

  // One mistake should explain all that is wrong. In a chain the lowest wrong layer still gets what is right,
  // or nearly so.
  std::vector<Guess> asked = guesses(in, layer, in.schedules[wrong_schedules.front()]);
  std::vector<Explained> shares(asked.size());
  for (const std::size_t s : wrong_schedules) {
    const auto input = in.golden.stream(layer, 0);
    const std::vector<Guess> ways = guesses(in, layer, in.schedules[s]);
    for (std::size_t g = 0; g < ways.size(); ++g) {
      const auto twisted = in.reference.twisted(
          layer, {input.data(), static_cast<std::size_t>(runs[s].tokens * in.golden.width)}, ways[g].twist);
      if (!twisted) break;
      explain_by(shares[g], in, runs[s], layer, *twisted);
    }
  }
  const Guess* best = nullptr;
  double best_share = 0.9;
  for (std::size_t g = 0; g < asked.size(); ++g)
    if (shares[g].share() > best_share + 1e-6) best_share = shares[g].share(), best = &asked[g];
  // The schedule that tells most: where it begins first, and of those the one with the longest calls.
  const std::size_t best_schedule =
      *std::min_element(wrong_schedules.begin(), wrong_schedules.end(), [&](std::size_t a, std::size_t b) {
        return std::pair(wrong[a].first, -in.schedules[a].longest()) <
               std::pair(wrong[b].first, -in.schedules[b].longest());
      });
  Sight sight;
  if (isolated) {
    const std::size_t s = best_schedule;
    const std::int64_t chunk = in.schedules[s].calls.front();
    const Schedule small =
        calls_of(std::min(chunk, kMostSightTokens),
                 std::min<std::int64_t>(kMostSightTokens, static_cast<std::int64_t>(in.tokens.size())));
    sight = read_sight(measured_sight(in, layer, small), small,
                       in.shape.layers[static_cast<std::size_t>(layer)].window);
  }
  if (best == nullptr && sight.what.empty()) return false;
  const std::size_t s = best_schedule;
  Finding found;
  found.cause = best != nullptr ? best->cause : sight.cause;
  found.check = isolated ? "isolated layers" : "chained layers";
  found.layer = layer;
  found.token = wrong[s].first;
  found.calls = in.schedules[s].name;
  found.cosine = wrong[s].second;
  const std::string rows =
      in.judges_rows() && in.row_differences.empty() ? "the rows of the state are right; " : "";
  found.what =
      cat("in layer ", layer, ", ", in.schedules[s].name, ", from token ", wrong[s].first, " on: ", rows);
  if (best != nullptr)
    found.what += cat(best->what, ": the reference computed that way explains ", share_text(best_share),
                      " of the difference");
  if (!sight.what.empty()) found.what += cat(best != nullptr ? "; measured: " : "", sight.what);
  found.what += cat(". ", calls_text(in, wrong_schedules), "; ",
                    layers_text({layers.begin(), layers.end()}, in.layers()),
                    layers.size() == 1 ? " is" : " are", " touched");
  found.advice = best != nullptr ? best->advice : sight.advice;
  in.report.findings.push_back(std::move(found));
  return true;
}

}  // namespace kvtide
