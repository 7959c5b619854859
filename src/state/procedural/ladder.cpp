#include "state/procedural/ladder.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/choice.h"
#include "state/procedural/fitting.h"
#include "state/procedural/ladder_steps.h"
#include "state/procedural/stages.h"

namespace kvtide {
namespace {

// A smaller step is worth nothing more below this window.
constexpr std::int64_t kLeastForText = 64;

[[noreturn]] void refuse_budget(const ProceduralOptions& options, const ProceduralBytes& smallest) {
  throw Error(ErrorCode::invalid_argument,
              cat("a KV budget of ", given_bytes(options.budget), " is too small: sinks, one window",
                  options.pins.empty() ? "" : ", what is pinned",
                  options.full_rows > 0 ? cat(", ", options.full_rows, " rows of copying heads") : "",
                  " and compact blocks",
                  !smallest.grows ? ""
                  : options.budget_for > 0
                      ? cat(", which grow with the ", options.budget_for, " tokens that are expected,")
                      : ", which grow with a text of which no end is known (-c),",
                  " need more; use at least ", enough_for(smallest.total())));
}

// The first step, for what goes beyond the expected text, with which `held` keeps all of it.
template <class Held>
std::optional<ProceduralOptions> first_held(const ProceduralOptions& options, const Held& held) {
  for (const LadderStep& step : ladder_for(options))
    if (auto found = held(filled(options, step))) return found;
  return std::nullopt;
}

bool is_open(const ProceduralOptions& o) {
  return o.window == 0 && o.block == 0 && o.rows == 0 && o.full_rows == 0 && o.spill.empty();
}

// A step that fits, with the newest rows in eight bits unless the budget cannot be used up so. They then take half of what
// they were written in, and lose nothing that can be measured.
std::optional<ProceduralOptions> fitted_window(Fitting& fitting, const KvSpec& shape,
                                               const ProceduralOptions& options, ProceduralOptions& o) {
  if (options.window_type != WindowType::automatic || options.window > 0 || !may_narrow(shape))
    return fitting.fit(o);
  ProceduralOptions narrow = o;
  narrow.window_type = WindowType::q8_0;
  const auto more = fitting.fit(narrow);
  if (!more || !fitting.is_used_up(*more))
    if (const auto wide = fitting.fit(o)) return wide;
  o = narrow;
  return more;
}

// A step that fits, with full heads in eight bits, or where these keep too few rows, in four: half of the facts are gone with
// half of the rows, and keys in four bits cost less than that.
std::optional<ProceduralOptions> fitted(Fitting& fitting, const KvSpec& shape,
                                        const ProceduralOptions& options, ProceduralOptions o) {
  const auto eight = fitted_window(fitting, shape, options, o);
  const bool open = options.full_type == RowType::automatic && o.full_type == RowType::q8_0;
  if (!open || !options.spill.empty() || (eight && fitting.has_enough_text(*eight))) return eight;
  if (!eight && o.row_type != RowType::q4_0) return {};  // beside rows in eight bits a smaller step is better
  o.full_type = RowType::q4_0;
  const auto four = fitting.fit(o);
  return !eight || (four && four->full_rows > eight->full_rows) ? four : eight;
}

// The first step that fits, with what it leaves given away; or a smaller one that is worth more.
std::optional<ProceduralOptions> picked_step(Fitting& fitting, const KvSpec& shape,
                                             const ProceduralOptions& options) {
  std::optional<ProceduralOptions> best;
  for (const LadderStep& step : ladder_for(options)) {
    if (best && (step.window < kLeastForText || fitting.has_enough_text(*best))) break;
    const auto now = fitted(fitting, shape, options, filled(options, step));
    if (now && (!best || fitting.is_worth_more(*now, *best))) best = now;
    if (best && options.budget_for == 0) break;
  }
  return best;
}

// What a text of no known end gets, if its stages (stages.h) are over only after the expected text.
struct Staged {
  std::optional<ProceduralOptions> exact, every_row;
};
Staged staged(const KvSpec& shape, const AttentionShape& attention, const ProceduralOptions& options) {
  const Pos expected = options.budget_for;
  if (expected == 0 || !options.exact_first || !is_open(options) ||
      (attention.trained > 0 && expected > attention.trained))
    return {};
  ProceduralOptions endless = options;
  endless.budget_for = 0;
  // What is rewritten when the stages end is there twice.
  endless.budget -= std::max(options.budget / 64, std::min<std::int64_t>(options.budget / 16, 1 << 19));
  Fitting fitting(shape, attention, endless);
  // Stages that end when hardly more than the window was read would be of no use.
  fitting.keep_window_within(expected / 2);
  auto o = first_held(endless, [&](const ProceduralOptions& step) { return fitting.all_rows(step); });
  if (!o) o = picked_step(fitting, shape, endless);
  if (!o) return {};
  o->budget = options.budget;
  o->budget_for = expected;
  o->exact_first = true;
  const std::vector<RowStage> stages = procedural_spec(shape, attention, *o).stages;
  Staged result;
  if (!stages.empty() && stages.front().until > expected) result.exact = o;
  if (!stages.empty() && stages.back().until > expected) result.every_row = o;
  return result;
}

// The expected text as it is; every row of it, the newest as they are or all in eight bits; or what fits of it.
ProceduralOptions picked(const KvSpec& shape, const AttentionShape& attention,
                         const ProceduralOptions& options) {
  Fitting fitting(shape, attention, options);
  const Staged first = staged(shape, attention, options);
  if (first.exact) return *first.exact;
  if (auto o = first_held(options, [&](const auto& step) { return fitting.whole_window(step); })) return *o;
  if (auto o = first_held(options, [&](const auto& step) { return fitting.all_rows(step); })) return *o;
  if (first.every_row) return *first.every_row;
  const auto step = picked_step(fitting, shape, options);
  if (!step) refuse_budget(options, fitting.smallest());
  return *step;
}

}  // namespace

ProceduralOptions filled_in(const KvSpec& shape, const AttentionShape& attention,
                            const ProceduralOptions& given) {
  ProceduralOptions options = given;
  options.row_type = row_type_for(shape, attention, given);
  if (options.budget == 0) return filled(options, {512, 256, 64, 3});
  ProceduralOptions o = picked(shape, attention, options);
  if (options.budget_for == 0) o.exact_first = options.exact_first && is_open(options);
  return o;
}

}  // namespace kvtide
