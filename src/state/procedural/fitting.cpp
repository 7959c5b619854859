#include "state/procedural/fitting.h"

#include <algorithm>

#include "state/procedural/far.h"

namespace kvtide {
namespace {

// Where the length of the text is not known, full heads get at most so many rows before the window grows.
constexpr std::int64_t kFullRowsFirst = 24576;
// Where it is longer than what the model was trained for, they get as many as that, or so many if that is more, and not
// more than above if the end is not known. More rows, which are all seen squeezed into that length, cost perplexity and find
// less (docs/procedural_measurements.md).
constexpr std::int64_t kRowsBeyond = 12288;
// Rows of full heads, or of a window: more than any text has.
constexpr std::int64_t kMostRows = std::int64_t{1} << 21;
constexpr float kEveryHead = -1.0f;     // below any share of attention: all heads keep their rows
constexpr std::int64_t kRowsApart = 2;  // rows of a block grow by so many
constexpr std::int64_t kLargestBlock = 1024;

// A smaller step is better where full heads that hold less than this part of the text hold kMoreText times as much. It has to
// be kMuchMoreText times where blocks then keep less than three quarters of their rows, or the text is longer than the
// trained length. Full heads keep the passages of rare tokens first, so what is missing beyond that part is worth little.
constexpr double kTextWanted = 2.0 / 3.0, kMoreText = 7.0 / 6.0, kMuchMoreText = 1.5;

std::int64_t whole(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// The largest number up to `most` that fits; 0 does.
template <class Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
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

// What a full head needs behind the window, in whole blocks, to keep so many tokens.
std::int64_t rows_behind_window(const ProceduralOptions& o, std::int64_t tokens) {
  return std::max(2 * o.block, whole(tokens - o.window, o.block));
}

}  // namespace

Fitting::Fitting(const KvSpec& shape, const AttentionShape& attention, const ProceduralOptions& wanted)
    : shape_(shape), attention_(attention), wanted_(wanted), widest_(kMostRows), rows_first_(kFullRowsFirst) {
  // A text longer than the model was trained for is seen squeezed into seven eighths of that length: rows of a
  // window are not. Where they reach further back than copying heads see the past, these find less of it.
  const Pos expected = wanted.budget_for;
  beyond_ = attention.trained > 0 && (expected == 0 || expected > attention.trained);
  if (beyond_) widest_ = full_heads_see(far_from_of(attention.trained), attention.trained + 1);
  if (expected > 0) widest_ = std::min(widest_, expected);
  if (expected > 0) rows_first_ = expected;
  if (beyond_) rows_first_ = std::min(rows_first_, std::max(kRowsBeyond, attention.trained));
}

void Fitting::keep_window_within(std::int64_t rows) { widest_ = std::min(widest_, rows); }

std::optional<ProceduralOptions> Fitting::whole_window(ProceduralOptions o) const {
  if (wanted_.budget_for == 0 || wanted_.window > 0 || widest_ < wanted_.budget_for) return std::nullopt;
  o.window = whole(widest_, o.block);
  o.full_rows = wanted_.full_rows > 0 ? wanted_.full_rows : 2 * o.block;
  if (!fits(o)) return std::nullopt;
  if (wanted_.full_rows == 0) enlarge(o, &ProceduralOptions::full_rows, o.block, kFullRowsFirst);
  return o;
}

std::optional<ProceduralOptions> Fitting::all_rows(ProceduralOptions o) const {
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
    o.full_rows = rows_behind_window(o, wanted_.budget_for);
    return fits(o);
  };
  if (!with_window(0)) return std::nullopt;
  with_window(largest((widest - least) / o.block, with_window));
  return o;
}

std::optional<ProceduralOptions> Fitting::fit(const ProceduralOptions& step) {
  ProceduralOptions o = step;
  // Full heads take what the others leave, in whole blocks.
  const std::int64_t most = rows_behind_window(o, rows_first_);
  o.full_rows =
      wanted_.full_rows > 0 ? wanted_.full_rows : std::min({std::int64_t{8192}, 8 * o.window, most});
  const ProceduralBytes needed = bytes_of(o);
  if (!smallest_ || needed.total() < smallest_->total()) smallest_ = needed;
  if (needed.total() > o.budget) return std::nullopt;
  if (wanted_.full_rows == 0) {
    enlarge(o, &ProceduralOptions::full_rows, o.block, most);
    if (!rows_enough(o)) return o;
  }
  if (wanted_.window == 0) enlarge(o, &ProceduralOptions::window, o.block, whole(widest_, o.block));
  if (wanted_.rows == 0) enlarge(o, &ProceduralOptions::rows, kRowsApart, o.block);
  if (wanted_.levels < 0) enlarge(o, &ProceduralOptions::levels, 1, kMostLevels);
  const bool all_given = wanted_.block == 0 && o.rows == o.block && !is_used_up(o);
  return all_given ? fit_larger_blocks(step).value_or(o) : o;
}

bool Fitting::is_used_up(const ProceduralOptions& o) const {
  return bytes_of(o).total() >= o.budget / 100 * 92;
}

bool Fitting::rows_enough(const ProceduralOptions& o) const {
  return o.window + o.full_rows + o.block > rows_first_;
}

bool Fitting::is_worth_more(const ProceduralOptions& smaller, const ProceduralOptions& than) const {
  const bool far_fewer_rows = 4 * smaller.rows * than.block < 3 * than.rows * smaller.block;
  const double more = far_fewer_rows || beyond_ ? kMuchMoreText : kMoreText;
  return text_held(smaller) >= more * text_held(than);
}

// Where every row of a block stays and bytes are left: blocks of which more can stay, but none longer than a window that was
// asked for.
std::optional<ProceduralOptions> Fitting::fit_larger_blocks(ProceduralOptions step) {
  if (step.block >= kLargestBlock) return std::nullopt;
  step.block *= 2;
  if (wanted_.window > 0 && step.block > wanted_.window) return std::nullopt;
  step.window = std::max(step.window, step.block);
  return fit(step);
}

// The largest value that fits, whole units above what it is now.
template <class Count>
void Fitting::enlarge(ProceduralOptions& o, Count ProceduralOptions::*field, std::int64_t unit,
                      std::int64_t most) const {
  const std::int64_t least = o.*field;
  const auto with = [&](std::int64_t units) {
    o.*field = static_cast<Count>(least + units * unit);
    return fits(o);
  };
  with(largest((most - least) / unit, with));
}

// Rows of a full head over those of the expected text, as far as they are wanted.
double Fitting::text_held(const ProceduralOptions& o) const {
  const auto old = static_cast<double>(std::max<std::int64_t>(1, rows_first_ - o.window));
  return std::min(text_wanted(), static_cast<double>(o.full_rows) / old);
}

double Fitting::text_wanted() const { return beyond_ ? 1.0 : kTextWanted; }

bool Fitting::has_enough_text(const ProceduralOptions& o) const { return text_held(o) >= text_wanted(); }

bool Fitting::fits(const ProceduralOptions& o) const { return bytes_of(o).total() <= o.budget; }

ProceduralBytes Fitting::bytes_of(const ProceduralOptions& o) const {
  KvSpec spec = shape_;
  spec.rolling.reset();
  spec.procedural = procedural_spec(shape_, attention_, o);
  return planned_bytes(spec);
}

}  // namespace kvtide
