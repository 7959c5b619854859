// What a procedural memory holds, counted; and whether it adds up.
#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/memory.h"

namespace kvtide {

ProceduralCounts ProceduralMemory::counts() const {
  ProceduralCounts counts;
  counts.summary_rows.reserve(static_cast<std::size_t>(std::max(1, spec_.levels)));
  count(counts);
  return counts;
}

// With room in summary_rows for every level it needs no memory.
void ProceduralMemory::count(ProceduralCounts& counts) const noexcept {
  std::vector<std::int64_t> room = std::move(counts.summary_rows);
  room.clear();
  counts = counts_;
  counts.summary_rows = std::move(room);
  for (std::size_t layer = 0; layer < heads_.size(); ++layer)
    for (std::size_t h = 0; h < heads_[layer].size(); ++h)
      count_head(heads_[layer][h], spec_.plans[layer][h], counts);
  counts.log_mass_error = mass_errors_ == 0 ? 0.0 : mass_error_sum_ / static_cast<double>(mass_errors_);
}

void ProceduralMemory::count_head(const Head& source, const HeadPlan& plan,
                                  ProceduralCounts& counts) const noexcept {
  if (plan.full) {
    ++counts.full_heads;
    counts.full_rows += source.rows->rows();
    if (source.spilled == nullptr) return;
    counts.full_rows += source.spilled->rows();
    counts.spilled_rows += source.spilled->rows();
    counts.spilled_bytes += source.spilled->bytes();
    return;
  }
  std::int64_t row = 0;
  for (std::size_t b = 0; b < source.block_rows.size(); ++b) {
    const auto level = static_cast<std::size_t>(blocks_[b].level);
    if (counts.summary_rows.size() < level) counts.summary_rows.resize(level, 0);
    const std::int64_t rows = source.block_rows[b], summaries = source.rows->summaries(row, rows);
    counts.summary_rows[level - 1] += summaries;
    counts.outlier_rows += rows - summaries;
    row += rows;
  }
  for (row = 0; !spec_.pins.empty() && row < source.rows->rows(); ++row)
    counts.pinned_rows += is_pinned(spec_, source.rows->position(row));
}

void ProceduralMemory::audit() const {
  const auto sealed = static_cast<double>(std::max<Pos>(0, sealed_ - spec_.sinks));
  for (const auto& [layer, h] : heads_where([](const HeadPlan&) { return true; })) {
    const Head& source = head(layer, h);
    double tokens = source.lost;
    for (std::int64_t row = 0; row < source.rows->rows(); ++row)
      tokens += static_cast<double>(source.rows->note(row).count);
    if (source.spilled != nullptr) tokens += static_cast<double>(source.spilled->rows());
    if (tokens != sealed)
      throw Error(ErrorCode::numeric,
                  cat("procedural memory: layer ", layer, ", head ", h, " stands for ", tokens,
                      " tokens, lost ", source.lost, " of them, where ", sealed, " were sealed"));
  }
}

}  // namespace kvtide
