#include "state/procedural/ladder_steps.h"

#include <algorithm>
#include <span>

#include "state/procedural/choice.h"

namespace kvtide {
namespace {

using Texts = LadderStep::Texts;
// Tokens that so many levels of blocks reach back over.
constexpr Pos reach_of(int levels, std::int64_t block) { return 6 * block * ((Pos{1} << levels) - 1); }
// Over brief texts four levels of small blocks reach back: they lose less there than large ones of the same bytes
// (docs/procedural_measurements.md, as the other choices here).
constexpr Pos kBrief = reach_of(4, 128);
// A budget gets the first that fits and leaves full heads a fair share. Rows in eight bits:
constexpr LadderStep kEightBits[] = {{1024, 512, 96, 4, Texts::lengthy},
                                     {1024, 128, 24, 4, Texts::brief},
                                     {512, 256, 64, 4, Texts::lengthy},
                                     {512, 128, 24, 4},
                                     {256, 128, 24, 3},
                                     {128, 64, 16, 4},
                                     {128, 64, 16, 2},
                                     {64, 64, 16, 2},
                                     {64, 64, 16, 1},
                                     {32, 32, 12, 1}};
// Rows in four bits, of which more are kept:
constexpr LadderStep kFourBits[] = {{1024, 512, 160, 4, Texts::lengthy},
                                    {512, 256, 104, 4, Texts::lengthy},
                                    {512, 64, 40, 4, Texts::brief},
                                    {512, 128, 40, 4, Texts::lengthy},
                                    {256, 64, 32, 3},
                                    {128, 64, 32, 3},
                                    {128, 64, 24, 3},
                                    {64, 64, 24, 3},
                                    {64, 64, 24, 2},
                                    {64, 64, 16, 2},
                                    {64, 64, 16, 1},
                                    {32, 32, 12, 1}};

// Of so many levels those that it takes to reach back over the expected text. More would merge blocks later, but their
// bytes are worth more in copying heads.
int levels_within(int levels, std::int64_t block, Pos expected) {
  int enough = expected == 0 ? levels : 1;
  while (enough < levels && reach_of(enough, block) < expected) ++enough;
  return enough;
}

// Of so many rows that a budget picks in four bits one is a summary. In eight bits, where texts are longer than the trained
// length, more than a few bring nothing.
constexpr std::int64_t kRowsOfASummary = 3;

std::int64_t summaries_of(const ProceduralOptions& o, std::int64_t rows) {
  if (o.summaries >= 0) return o.summaries;
  return o.row_type == RowType::q4_0 && o.rows == 0 ? rows / kRowsOfASummary : ProceduralOptions::kSummaries;
}

// Can a block of the step keep the rows that were asked for? The largest step says why not, if none can.
bool takes_rows(const LadderStep& step, const ProceduralOptions& o) {
  const std::int64_t block = o.block > 0 ? o.block : step.block, rows = o.rows > 0 ? o.rows : step.rows;
  return step.window == kFourBits[0].window ||
         (rows <= block && summaries_of(o, rows) < std::min(rows, block));
}

}  // namespace

std::vector<LadderStep> ladder_for(const ProceduralOptions& options) {
  const bool brief = options.budget_for > 0 && options.budget_for <= kBrief;
  std::vector<LadderStep> steps;
  const std::span<const LadderStep> ladder =
      options.row_type == RowType::q4_0 ? std::span<const LadderStep>(kFourBits) : kEightBits;
  for (const LadderStep& step : ladder)
    if ((step.texts == Texts::all || (step.texts == Texts::brief) == brief) && takes_rows(step, options))
      steps.push_back(step);
  return steps;
}

ProceduralOptions filled(const ProceduralOptions& options, const LadderStep& step) {
  ProceduralOptions o = options;
  if (o.block == 0) o.block = o.window > 0 ? std::min(step.block, o.window) : step.block;
  if (o.window == 0) o.window = std::max(step.window, o.block);
  if (o.rows == 0) o.rows = std::min(step.rows, o.block);
  o.summaries = summaries_of(options, o.rows);
  if (o.levels < 0) o.levels = levels_within(step.levels, o.block, options.budget_for);
  o.exact_first = false;  // decided when the rest is
  if (o.window_type == WindowType::automatic) o.window_type = WindowType::as_written;
  if (o.full_type == RowType::automatic)
    o.full_type = o.row_type == RowType::f16 ? RowType::f16 : RowType::q8_0;
  return o;
}

}  // namespace kvtide
