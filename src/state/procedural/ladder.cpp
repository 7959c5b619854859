#include "state/procedural/ladder.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/procedural/stages.h"

namespace kvtide {
namespace {

// From the most faithful to the smallest; a budget gets the first that fits and leaves full heads a fair
// share.
struct Step {
  std::int64_t window, block, rows;
  int levels;
  enum class Texts { all, brief, lengthy } texts = Texts::all;
};
using Texts = Step::Texts;
// Tokens that so many levels of blocks reach back over.
constexpr Pos reach_of(int levels, std::int64_t block) { return 6 * block * ((Pos{1} << levels) - 1); }
// Over brief texts four levels of small blocks reach back: they lose less there than large ones of the same bytes
// (docs/procedural_measurements.md, as the other choices here).
constexpr Pos kBrief = reach_of(4, 128);
constexpr Step kLadder[] = {{1024, 512, 96, 4, Texts::lengthy},
                            {1024, 128, 24, 4, Texts::brief},
                            {512, 256, 64, 4, Texts::lengthy},
                            {512, 128, 24, 4},
                            {256, 128, 24, 3},
                            {128, 64, 16, 4},
                            {128, 64, 16, 2},
                            {64, 64, 16, 2},
                            {64, 64, 16, 1},
                            {32, 32, 12, 1}};
std::vector<Step> ladder_for(const ProceduralOptions& options) {
  const bool brief = options.budget_for > 0 && options.budget_for <= kBrief;
  std::vector<Step> steps;
  for (const Step& step : kLadder)
    if (step.texts == Texts::all || (step.texts == Texts::brief) == brief) steps.push_back(step);
  return steps;
}

// Where the length of the text is not known, full heads get so many rows before the window grows.
constexpr std::int64_t kFullRowsFirst = 24576;
// Rows of full heads, or of a window: more than any text has.
constexpr std::int64_t kMostRows = std::int64_t{1} << 21;
constexpr float kEveryHead = -1.0f;     // below any share of attention: all heads keep their rows
constexpr std::int64_t kRowsApart = 8;  // rows of a block grow by so many
constexpr std::int64_t kLargestBlock = 1024;

// A smaller step is better where one head in so many more keeps every row of the text for it.
constexpr double kWorthAStep = 8.0;
// So is one with which full heads that hold only a part of the text hold so many times as much, down to this window.
constexpr double kMoreText = 1.5;
constexpr std::int64_t kLeastForText = 64;
// Otherwise down to this window and so many levels: less loses more than heads bring.
constexpr std::int64_t kLeastWorth = 128;
constexpr int kLeastLevels = 3;
// Where eight bits leave fewer than one head in so many the whole text, four bits for nearly twice the heads are better.
constexpr double kWorthFourBits = 3.0;
constexpr double kMoreInFourBits = 16.0;  // if these are one head in so many at least

// Of so many levels those that it takes to reach back over the expected text. More would merge blocks later, but their
// bytes are worth more in copying heads.
int levels_within(int levels, std::int64_t block, Pos expected) {
  int enough = expected == 0 ? levels : 1;
  while (enough < levels && reach_of(enough, block) < expected) ++enough;
  return enough;
}

// The step's window, block, rows and levels where the options leave them open.
ProceduralOptions filled(const KvSpec& shape, const ProceduralOptions& options, const Step& step) {
  ProceduralOptions o = options;
  if (o.block == 0) o.block = o.window > 0 ? std::min(step.block, o.window) : step.block;
  if (o.window == 0) o.window = std::max(step.window, o.block);
  if (o.rows == 0) o.rows = std::min(step.rows, o.block);
  if (o.levels < 0) o.levels = levels_within(step.levels, o.block, options.budget_for);
  o.exact_first = false;  // decided when the rest is
  if (o.window_type == WindowType::automatic) o.window_type = WindowType::as_written;
  if (o.full_type == FullType::automatic)
    o.full_type = row_type_of(shape, o) == DType::f16 ? FullType::f16 : FullType::q8_0;
  return o;
}

// Within a budget.
class Fitting {
 public:
  Fitting(const KvSpec& shape, const AttentionShape& attention, const ProceduralOptions& wanted)
      : shape_(shape), attention_(attention), wanted_(wanted) {
    // A text longer than the model was trained for is seen squeezed into seven eighths of that length: rows of a
    // window are not.
    const Pos expected = wanted.budget_for;
    const bool beyond = attention.trained > 0 && (expected == 0 || expected > attention.trained);
    if (beyond) widest_ = attention.trained / 8 * 7;
    if (expected > 0) {
      widest_ = std::min(widest_, expected);
      rows_first_ = expected;
    }
    for (const HeadNeed& need : wanted.heads.needs)
      if (need.induction > 0.0f && need.induction < wanted.full_from) more_heads_.push_back(need.induction);
    std::sort(more_heads_.begin(), more_heads_.end(), std::greater<>());
  }

  void keep_window_within(std::int64_t rows) { widest_ = std::min(widest_, rows); }

  // A window that holds the expected text, if it may be so wide.
  std::optional<ProceduralOptions> whole_window(ProceduralOptions o) const {
    if (wanted_.budget_for == 0 || wanted_.window > 0 || widest_ < wanted_.budget_for) return std::nullopt;
    o.window = whole(widest_, o.block);
    o.full_rows = wanted_.full_rows > 0 ? wanted_.full_rows : 2 * o.block;
    if (!fits(o)) return std::nullopt;
    if (wanted_.full_rows == 0) enlarge(o, &ProceduralOptions::full_rows, o.block, kFullRowsFirst);
    return o;
  }

  // Every head keeps every row of the expected text, exact ones in as wide a window as fits. Longer texts thin out.
  // Without an end: the widest window, and in every head as many rows as fit.
  std::optional<ProceduralOptions> all_rows(ProceduralOptions o) const {
    if (wanted_.window > 0 || wanted_.full_rows > 0 || wanted_.rows > 0) return std::nullopt;
    o.full_from = kEveryHead;
    const std::int64_t least = o.window, widest = whole(widest_, o.block);
    if (wanted_.budget_for == 0) {
      o.window = std::max(least, widest);
      o.full_rows = kFullRowsFirst;
      if (!fits(o)) return std::nullopt;
      enlarge(o, &ProceduralOptions::full_rows, o.block, kMostRows);
      return o;
    }
    const auto with_window = [&](std::int64_t blocks) {
      o.window = least + blocks * o.block;
      o.full_rows = rows_of_text(o);
      return fits(o);
    };
    if (!with_window(0)) return std::nullopt;
    with_window(largest((widest - least) / o.block, with_window));
    return o;
  }

  // As many full rows as fit, then more full heads, then a wider window, then more rows of each block, then more
  // blocks; nullopt when these options do not fit.
  std::optional<ProceduralOptions> fit(const ProceduralOptions& step) {
    ProceduralOptions o = step;
    // Full heads take what the others leave, in whole blocks.
    const std::int64_t most = rows_of_text(o);
    o.full_rows =
        wanted_.full_rows > 0 ? wanted_.full_rows : std::min({std::int64_t{8192}, 8 * o.window, most});
    const ProceduralBytes needed = bytes_of(o);
    if (!smallest_ || needed.total() < smallest_->total()) smallest_ = needed;
    if (needed.total() > o.budget) return std::nullopt;
    if (wanted_.full_rows == 0) {
      enlarge(o, &ProceduralOptions::full_rows, o.block, most);
      if (!rows_enough(o)) return o;
      if (wanted_.budget_for > 0) add_heads(o);
    }
    if (wanted_.window == 0) enlarge(o, &ProceduralOptions::window, o.block, whole(widest_, o.block));
    if (wanted_.rows == 0) enlarge(o, &ProceduralOptions::rows, kRowsApart, o.block);
    if (wanted_.levels < 0) enlarge(o, &ProceduralOptions::levels, 1, kMostLevels);
    const bool all_given = wanted_.block == 0 && o.rows == o.block && !is_used_up(o);
    return all_given ? fit_larger_blocks(step).value_or(o) : o;
  }

  // Is so much of the budget taken as should be of every one?
  bool is_used_up(const ProceduralOptions& o) const { return bytes_of(o).total() >= o.budget / 100 * 92; }
  // Do full heads have as many rows as they get before anything else grows?
  bool rows_enough(const ProceduralOptions& o) const {
    return o.window + o.full_rows + o.block > rows_first_;
  }
  // Full heads, each counted by its share of the rows of the expected text, and how many more of them are worth more
  // than the rows and the window of a larger step (docs/procedural_measurements.md).
  double whole_heads(const ProceduralOptions& o) const {
    const auto heads = std::count_if(wanted_.heads.needs.begin(), wanted_.heads.needs.end(),
                                     [&](const HeadNeed& need) { return need.induction >= o.full_from; });
    const std::int64_t old = std::max<std::int64_t>(1, rows_first_ - o.window);
    return static_cast<double>(heads * std::min(old, o.full_rows)) / static_cast<double>(old);
  }
  // Would more of them in four bits be better?
  bool few_whole_heads(const ProceduralOptions& o) const {
    return wanted_.budget_for > 0 &&
           kWorthFourBits * whole_heads(o) < static_cast<double>(wanted_.heads.needs.size());
  }
  // Is a smaller step better, for what its full heads keep of the expected text?
  bool is_worth_more(const ProceduralOptions& smaller, const ProceduralOptions& than) const {
    const double before = whole_heads(than), after = whole_heads(smaller);
    const bool more_text = !rows_enough(than) && before > 0 && after >= kMoreText * before;
    return more_text || after >= before + one_in(kWorthAStep);
  }
  // One head in so many, and one at least.
  double one_in(double heads) const {
    return std::max(1.0, static_cast<double>(wanted_.heads.needs.size()) / heads);
  }
  // Of all that was tried.
  const ProceduralBytes& smallest() const { return *smallest_; }

 private:
  static std::int64_t whole(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }
  // What a full head needs behind the window, in whole blocks, to keep all that comes first.
  std::int64_t rows_of_text(const ProceduralOptions& o) const {
    return std::max(2 * o.block, whole(rows_first_ - o.window, o.block));
  }

  // Where every row of a block stays and bytes are left: blocks of which more can stay.
  std::optional<ProceduralOptions> fit_larger_blocks(ProceduralOptions step) {
    if (step.block >= kLargestBlock) return std::nullopt;
    step.block *= 2;
    step.window = std::max(step.window, step.block);
    return fit(step);
  }

  // More heads keep every row of the expected text: those next in the head table.
  void add_heads(ProceduralOptions& o) const {
    const float least = o.full_from;
    const auto with = [&](std::int64_t heads) {
      o.full_from = heads == 0 ? least : more_heads_[static_cast<std::size_t>(heads - 1)];
      return fits(o);
    };
    with(largest(static_cast<std::int64_t>(more_heads_.size()), with));
  }

  // The largest value that fits, whole units above what it is now.
  template <class Count>
  void enlarge(ProceduralOptions& o, Count ProceduralOptions::*field, std::int64_t unit,
               std::int64_t most) const {
    const std::int64_t least = o.*field;
    const auto with = [&](std::int64_t units) {
      o.*field = static_cast<Count>(least + units * unit);
      return fits(o);
    };
    with(largest((most - least) / unit, with));
  }

  // The largest number up to `most` that fits; 0 does.
  template <class Fits>
  static std::int64_t largest(std::int64_t most, const Fits& fits) {
    std::int64_t low = 0, high = std::max<std::int64_t>(0, most);
    while (low < high) {
      const std::int64_t middle = (low + high + 1) / 2;
      if (fits(middle))
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

  bool fits(const ProceduralOptions& o) const { return bytes_of(o).total() <= o.budget; }
  ProceduralBytes bytes_of(const ProceduralOptions& o) const {
    KvSpec spec = shape_;
    spec.rolling.reset();
    spec.procedural = procedural_spec(shape_, attention_, o);
    return planned_bytes(spec);
  }

  const KvSpec& shape_;
  const AttentionShape& attention_;
  const ProceduralOptions& wanted_;
  std::int64_t widest_ = kMostRows, rows_first_ = kFullRowsFirst;
  std::vector<float> more_heads_;  // induction of those that are not full, falling
  std::optional<ProceduralBytes> smallest_;
};

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
std::optional<ProceduralOptions> first_held(const KvSpec& shape, const ProceduralOptions& options,
                                            const Held& held) {
  for (const Step& step : ladder_for(options))
    if (auto found = held(filled(shape, options, step))) return found;
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

// A step that fits, in eight bits or where these keep too few rows, or few heads whole, in four.
ProceduralOptions fitted(Fitting& fitting, const ProceduralOptions& options, ProceduralOptions o,
                         const ProceduralOptions& eight) {
  const bool open = options.full_type == FullType::automatic && o.full_type == FullType::q8_0;
  if (!open || !options.spill.empty()) return eight;
  // Half of the facts are gone with half of the rows, whereas four bits hold nearly all of what eight bits hold.
  const bool enough = fitting.rows_enough(eight);
  if (enough && !fitting.few_whole_heads(eight)) return eight;
  o.full_type = FullType::q4_0;
  const auto four = fitting.fit(o);
  if (!four) return eight;
  const bool better =
      enough ? fitting.whole_heads(*four) >= fitting.whole_heads(eight) + fitting.one_in(kMoreInFourBits)
             : four->full_rows > eight.full_rows;
  return better ? *four : eight;
}

// The first step that fits, with what it leaves given away; or a smaller one that is worth more.
std::optional<ProceduralOptions> picked_step(Fitting& fitting, const KvSpec& shape,
                                             const ProceduralOptions& options) {
  std::optional<ProceduralOptions> best;
  for (const Step& step : ladder_for(options)) {
    const bool enough = best && fitting.rows_enough(*best);
    if (best && step.window < (enough ? kLeastWorth : kLeastForText)) break;
    if (enough && step.levels < kLeastLevels) break;
    ProceduralOptions o = filled(shape, options, step);
    const auto eight = fitted_window(fitting, shape, options, o);
    if (!eight) continue;
    const ProceduralOptions now = fitted(fitting, options, o, *eight);
    if (best && !fitting.is_worth_more(now, *best)) break;
    best = now;
    if (options.budget_for == 0) break;
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
  auto o = first_held(shape, endless, [&](const ProceduralOptions& step) { return fitting.all_rows(step); });
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
  if (auto o = first_held(shape, options, [&](const auto& step) { return fitting.whole_window(step); }))
    return *o;
  if (auto o = first_held(shape, options, [&](const auto& step) { return fitting.all_rows(step); }))
    return *o;
  if (first.every_row) return *first.every_row;
  const auto step = picked_step(fitting, shape, options);
  if (!step) refuse_budget(options, fitting.smallest());
  return *step;
}

}  // namespace

ProceduralOptions filled_in(const KvSpec& shape, const AttentionShape& attention,
                            const ProceduralOptions& options) {
  if (options.budget == 0) return filled(shape, options, {512, 256, 64, 3});
  ProceduralOptions o = picked(shape, attention, options);
  if (options.budget_for == 0) o.exact_first = options.exact_first && is_open(options);
  return o;
}

}  // namespace kvtide
