// Causes that show in the rows of the state: what the wrong rows equal instead says what went wrong.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/text.h"
#include "validate/inspection.h"
#include "validate/row_match.h"

namespace kvtide {
namespace {

struct Story {  // of one layer under one schedule
  const Schedule& schedule;
  const HeldRows& held;
  std::int64_t heads, tokens;
  Pos judged_from;  // a window may have let go of what is before
  std::vector<WrongRow> wrong;

  Pos call_start(Pos token) const {
    Pos start = 0;
    for (const Pos s : schedule.starts())
      if (s <= token) start = s;
    return start;
  }
  std::int64_t call_length(Pos token) const {
    const auto starts = schedule.starts();
    const auto next = std::upper_bound(starts.begin(), starts.end(), token);
    return (next == starts.end() ? tokens : *next) - call_start(token);
  }
  std::int64_t of(RowMatch::Kind kind) const {
    return std::count_if(wrong.begin(), wrong.end(), [&](const WrongRow& r) { return r.match.kind == kind; });
  }
  bool any(bool key) const {
    return std::any_of(wrong.begin(), wrong.end(), [&](const WrongRow& r) { return r.key == key; });
  }
  std::int64_t all() const { return static_cast<std::int64_t>(wrong.size()); }
};

struct Cause {
  std::string name, what, advice;
  std::optional<Pos> token = {};  // nullopt: the first wrong one
};

std::string row_text(const WrongRow& row) {
  return cat("the ", row.key ? "key" : "value", " of head ", row.head, " in slot ", row.token);
}

bool most(std::int64_t some, std::int64_t all) { return some * 10 >= all * 9 && some > 0; }

// Everything before the last call is gone.
std::optional<Cause> recreated(const Story& s) {
  if (s.schedule.calls.size() < 2) return std::nullopt;
  const Pos last = s.schedule.starts()[s.schedule.calls.size() - 1];
  std::int64_t gone = 0;
  for (const WrongRow& row : s.wrong)
    gone += row.token < last && (row.match.kind == RowMatch::zero || row.match.kind == RowMatch::missing);
  const bool all_rows = most(gone, last * s.heads * 2);
  const bool short_state = s.held.rows > 0 && s.held.rows == s.tokens - last && s.held.rows < s.tokens;
  if (!all_rows && !short_state) return std::nullopt;
  return Cause{
      "state_recreated",
      cat("after ", s.tokens, " tokens the state holds the rows of the last call only (from token ", last,
          " on); all earlier slots are ", short_state ? "absent" : "zeros"),
      "Make one state when the sequence begins and pass the same one to every call; here each call gets a "
      "new one.",
      s.schedule.calls.front()};
}

// Right inside a call, wrong where a call begins.
std::optional<Cause> edges(const Story& s) {
  if (s.schedule.longest() < 3 || s.schedule.calls.size() < 2 || s.wrong.empty()) return std::nullopt;
  if (most(s.of(RowMatch::position), s.all())) return std::nullopt;  // the rows are there, turned otherwise
  std::set<Pos> begun;
  std::int64_t deepest = 0;
  for (const WrongRow& row : s.wrong) {
    const Pos start = s.call_start(row.token);
    if (start == 0 || row.token - start > 1) return std::nullopt;
    deepest = std::max(deepest, row.token - start + 1);
    begun.insert(start);
  }
  if (begun.size() + 1 < s.schedule.calls.size()) return std::nullopt;
  const bool keys = s.any(true), values = s.any(false);
  const std::int64_t zeros = s.of(RowMatch::zero);
  return Cause{
      "history_dropped",
      cat("the ", keys ? values ? "keys and values" : "keys" : "values", " of the first ",
          deepest == 1 ? "token" : cat(deepest, " tokens"),
          " of every call but the first are wrong, all others right",
          zeros > 0 ? cat("; ", zeros, " of those rows are zeros") : "",
          ": what a call must take over from the one before, beside the rows, is lost"),
      keys ? "A convolution's history (and a delayed value) belongs to the state: keep the last inputs of a "
             "call and put them before the next one."
           : "A delayed value belongs to the state: keep it from the last token of a call for the next one."};
}

std::optional<Cause> other_layer(const Story& s, int layer) {
  if (!most(s.of(RowMatch::layer), s.all())) return std::nullopt;
  std::map<int, std::int64_t> layers;
  for (const WrongRow& row : s.wrong) ++layers[row.match.layer_found];
  const auto top = std::max_element(layers.begin(), layers.end(),
                                    [](const auto& a, const auto& b) { return a.second < b.second; });
  return Cause{"state_shared_between_shards",
               cat(s.of(RowMatch::layer), " of the ", s.all(), " wrong rows in the state of layer ", layer,
                   " are the reference's rows of layer ", top->first, ", token for token"),
               cat("Layers ", layer, " and ", top->first,
                   " write into the same memory: every layer (every shard) needs a state of its own.")};
}

std::optional<Cause> interleaved(const Story& s) {
  std::int64_t fit = 0;
  const WrongRow* example = nullptr;
  for (const WrongRow& row : s.wrong) {
    const Pos start = s.call_start(row.token);
    const std::int64_t length = s.call_length(row.token);
    const std::int64_t flat = (row.token - start) * s.heads + row.head;
    const std::int64_t back = row.head * length + row.token - start;  // read the other way round
    const bool there =
        (row.match.kind == RowMatch::token || row.match.kind == RowMatch::head) &&
        ((row.match.head_found == flat / length && row.match.token_found == start + flat % length) ||
         (row.match.head_found == back % s.heads && row.match.token_found == start + back / s.heads));
    fit += there;
    if (there && row.match.kind == RowMatch::head && example == nullptr) example = &row;
  }
  if (example == nullptr || !most(fit, s.all())) return std::nullopt;
  return Cause{"heads_interleaved",
               cat(row_text(*example), " is that of head ", example->match.head_found, " of token ",
                   example->match.token_found, "; ", fit, " of ", s.all(),
                   " wrong rows lie where [heads, tokens] read as [tokens, heads] puts them"),
               "Transpose [heads, tokens, dim] to [tokens, heads, dim] before it is reshaped; with one token "
               "a call both "
               "are the same, which is why calls of 1 look right."};
}

std::optional<Cause> write_slot(const Story& s) {
  const std::int64_t moved = s.of(RowMatch::token), empty = s.of(RowMatch::zero);
  if (moved == 0 || !most(moved + empty, s.all()) || !s.any(true) || !s.any(false)) return std::nullopt;
  const auto example = std::find_if(s.wrong.begin(), s.wrong.end(),
                                    [](const WrongRow& r) { return r.match.kind == RowMatch::token; });
  const auto hole = std::find_if(s.wrong.begin(), s.wrong.end(),
                                 [](const WrongRow& r) { return r.match.kind == RowMatch::zero; });
  return Cause{"write_slot",
               cat("slot ", example->token, " holds the rows of token ", example->match.token_found,
                   hole == s.wrong.end() ? "" : cat(", slot ", hole->token, " is empty"),
                   "; keys and values agree, so ", "the rows are right and lie in the wrong place"),
               "Token t of a call that begins at position n goes to slot n + t: look at column t of the "
               "write mask, or at "
               "the index that the scatter uses when a call has several tokens."};
}

// Rows that were written once, or never.
std::optional<Cause> lost(const Story& s) {
  const std::int64_t gone = s.of(RowMatch::zero) + s.of(RowMatch::missing);
  if (!most(gone, s.all())) return std::nullopt;
  Pos first = s.tokens, last = 0;
  for (const WrongRow& row : s.wrong) first = std::min(first, row.token), last = std::max(last, row.token);
  const char* part = s.any(true) ? s.any(false) ? "keys and values" : "keys" : "values";
  return Cause{
      "rows_lost",
      cat("the ", part, " of the tokens ", first, " to ", last, " are zeros or absent, all others are right"),
      "Look for what clears or drops rows: a reset, a buffer that is made anew, a write that is left out."};
}

// Same token, another head.
std::optional<Cause> heads_changed(const Story& s) {
  std::int64_t fit = 0;
  for (const WrongRow& row : s.wrong)
    fit += row.match.kind == RowMatch::head && row.match.token_found == row.token;
  if (!most(fit, s.all())) return std::nullopt;
  const WrongRow& row = *std::find_if(s.wrong.begin(), s.wrong.end(),
                                      [](const WrongRow& r) { return r.match.kind == RowMatch::head; });
  const char* part = s.any(true) ? s.any(false) ? "rows" : "keys" : "values";
  return Cause{
      s.any(true) ? "heads_swapped" : "value_halves_swapped",
      cat("the ", part, " of head ", row.head, " are those of head ", row.match.head_found,
          " of the same token, in ", fit, " of ", s.all(), " wrong rows"),
      s.any(true)
          ? "Heads are in another order than the reference's: look at how the projection's rows are split."
          : "The parts that make up the values are concatenated in the wrong order: look at which "
            "half (the current or the delayed one) belongs to which head."};
}

// Values of the token before, or after.
std::optional<Cause> values_delayed(const Story& s) {
  if (s.any(true) || !most(s.of(RowMatch::token) + s.of(RowMatch::zero), s.all())) return std::nullopt;
  std::map<std::int64_t, std::int64_t> shifts;
  for (const WrongRow& row : s.wrong)
    if (row.match.kind == RowMatch::token) ++shifts[row.match.token_found - row.token];
  if (shifts.size() > 2 || shifts.empty()) return std::nullopt;
  return Cause{"values_delayed",
               cat("the values of head ", s.wrong.front().head, " in slot ", s.wrong.front().token,
                   " are those of token ", s.wrong.front().match.token_found, ", while the keys are right"),
               "A value is taken from another token than its key: look at which half of the values is "
               "delayed by one."};
}

std::optional<Cause> moved_position(const Story& s) {
  if (s.any(false) || !most(s.of(RowMatch::position), s.all())) return std::nullopt;
  std::map<std::int64_t, std::int64_t> shifts;
  for (const WrongRow& row : s.wrong)
    if (row.match.kind == RowMatch::position) ++shifts[row.match.token_found - row.token];
  const WrongRow& row = s.wrong.front();
  const auto all_at = [&](auto&& position) {
    return std::all_of(s.wrong.begin(), s.wrong.end(), [&](const WrongRow& r) {
      return r.match.kind != RowMatch::position || r.match.token_found == position(r);
    });
  };
  // A call of one token says too little: the position in it is 0.
  const bool calls_of_one = std::all_of(s.wrong.begin(), s.wrong.end(),
                                        [&](const WrongRow& r) { return s.call_length(r.token) == 1; });
  if (calls_of_one && s.schedule.longest() > 1 && all_at([](const WrongRow&) { return Pos{0}; }))
    return std::nullopt;
  const bool everywhere = most(s.all(), (s.tokens - std::max<Pos>(1, s.judged_from)) * s.heads);
  if (everywhere && all_at([](const WrongRow&) { return Pos{0}; }))
    return Cause{
        "rope_skipped",
        cat("keys are not rotated: all ", s.all(), " wrong rows are as at position 0; values are right"),
        "Rotate queries and keys before attention, each token for its own position."};
  if (all_at([&](const WrongRow& r) { return r.token - s.call_start(r.token); }))
    return Cause{"position_in_call",
                 cat("positions are counted within the call: ", row_text(row), " is rotated for position ",
                     row.match.token_found, ", and its call begins at token ", s.call_start(row.token)),
                 "Token t of a call that begins at position n stands at n + t."};
  if (shifts.size() > 1) {
    std::set<Pos> used;
    for (const WrongRow& r : s.wrong) used.insert(r.match.token_found);
    return Cause{
        "position",
        cat("keys are right but for their rotation: ", row_text(row), " is rotated for position ",
            row.match.token_found, "; ", used.size(), " positions serve ", s.wrong.size(), " wrong rows"),
        "Rotate every token of a call for its own position: n + t for token t of a call that begins at n."};
  }
  const std::int64_t shift = shifts.begin()->first;
  return Cause{shift == 1 || shift == -1 ? "position_off_by_one" : "position",
               cat("keys are right but for their rotation: ", row_text(row), " is rotated for position ",
                   row.match.token_found, ", ", shift > 0 ? "" : "-", shift > 0 ? shift : -shift,
                   " off, and so are all ", s.all(), " wrong rows; values are right"),
               "The position handed to the rotation is not that of the token: is the counter advanced before "
               "the call, or "
               "does it count from 1?"};
}

std::optional<Cause> rope_width(const Story& s, std::int64_t pairs) {
  if (s.any(false) || !most(s.of(RowMatch::wide), s.all())) return std::nullopt;
  const auto found = std::find_if(s.wrong.begin(), s.wrong.end(),
                                  [](const WrongRow& r) { return r.match.kind == RowMatch::wide; });
  return Cause{
      "rope_width",
      cat("keys are rotated over ", 2 * found->match.pairs, " dimensions of the ", s.held.head_dim,
          " of a head instead of ", 2 * pairs, ": ", s.of(RowMatch::wide), " of ", s.all(),
          " wrong rows equal the reference's keys rotated that way; position 0, which is not rotated, is "
          "right"),
      "The rotated width is part of the model (partial_rotary_factor, rope.dimension_count); the frequencies "
      "and the pairs follow from it, not from the size of a head."};
}

std::vector<WrongRow> wrong_rows(const Inspection& in, const HeldRows& held, int layer, std::int64_t tokens) {
  const HeldRows& wanted = in.golden.rows[static_cast<std::size_t>(layer)];
  const auto frequencies = in.reference.frequencies(layer);
  const auto window = in.shape.layers[static_cast<std::size_t>(layer)].window;
  const double tolerance = std::max(0.03, 1.5 * relative_of(in.options.row_gate));
  std::vector<WrongRow> out;
  for (Pos t = window ? std::max<Pos>(0, tokens - *window) : 0; t < tokens; ++t)
    for (std::int64_t head = 0; head < wanted.kv_heads; ++head)
      for (const bool key : {true, false}) {
        if (t < held.first || t >= held.first + held.rows) {
          out.push_back({key, head, t, {RowMatch::missing, 0, 0, 0, 0}});
          continue;
        }
        const auto row = key ? held.key(head, t) : held.value(head, t);
        const auto right = key ? wanted.key(head, t) : wanted.value(head, t);
        if (alike(likeness(row, right), std::min(in.options.row_gate, in.gate_of(t)))) continue;
        out.push_back(
            {key, head, t, find_row(row, {in.golden, layer, key, head, t, frequencies, tolerance})});
      }
  return out;
}

using Look = std::function<std::optional<Cause>(const Story&)>;

// The first of the looks that finds something, under the schedule that tells most.
bool explain_by(Inspection& in, const std::function<std::vector<Look>(int layer)>& looks_at) {
  if (in.row_differences.empty()) return false;
  int layer = in.layers();
  for (const Difference& d : in.row_differences) layer = std::min(layer, d.layer);
  const std::vector<Look> looks = looks_at(layer);
  std::map<std::size_t, double> worst;  // schedules that are wrong in it
  std::set<int> layers;
  for (const Difference& d : in.row_differences) {
    layers.insert(d.layer);
    if (d.layer == layer)
      worst[d.schedule] = std::min(worst.emplace(d.schedule, 1.0).first->second, d.cosine);
  }
  std::vector<std::size_t> order;
  for (const auto& [schedule, cosine] : worst) order.push_back(schedule);
  const std::vector<std::size_t> wrong_schedules = order;
  // Long calls tell more: what happens inside a call and between two can be told apart.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return in.schedules[a].longest() > in.schedules[b].longest();
  });
  const std::vector<Run>& runs = in.isolated.empty() ? in.chained : in.isolated;
  for (const std::size_t schedule : order) {
    const Run& run = runs[schedule];
    const HeldRows& held = run.rows[static_cast<std::size_t>(layer)];
    const auto window = in.shape.layers[static_cast<std::size_t>(layer)].window;
    const Story story{in.schedules[schedule],
                      held,
                      in.golden.rows[static_cast<std::size_t>(layer)].kv_heads,
                      run.tokens,
                      window ? std::max<Pos>(0, run.tokens - *window) : 0,
                      wrong_rows(in, held, layer, run.tokens)};
    std::optional<Cause> cause;
    for (const auto& look : looks) {
      cause = look(story);
      if (cause) break;
    }
    if (!cause) continue;
    Finding found;
    found.cause = cause->name;
    found.check = "rows of the state";
    found.layer = layer;
    found.token = cause->token ? *cause->token : story.wrong.front().token;
    found.calls = in.schedules[schedule].name;
    found.cosine = worst[schedule];
    found.what =
        cat("in layer ", layer, ", ", in.schedules[schedule].name, ": ", cause->what, ". ",
            calls_text(in, wrong_schedules), "; ", layers_text({layers.begin(), layers.end()}, in.layers()),
            layers.size() == 1 ? " is" : " are", " touched");
    found.advice = cause->advice;
    in.report.findings.push_back(std::move(found));
    return true;
  }
  return false;
}

}  // namespace

bool explain_rows(Inspection& in) {
  return explain_by(in, [](int layer) {
    return std::vector<Look>{
        recreated,     moved_position, edges, [layer](const Story& s) { return other_layer(s, layer); },
        interleaved,   write_slot,     lost,  heads_changed,
        values_delayed};
  });
}

// A key may look like one of another width by chance, so better evidence comes before it.
bool explain_rope_width(Inspection& in) {
  return explain_by(in, [&in](int layer) {
    const auto pairs = static_cast<std::int64_t>(in.reference.frequencies(layer).size());
    return std::vector<Look>{[pairs](const Story& s) { return rope_width(s, pairs); }};
  });
}

}  // namespace kvtide
