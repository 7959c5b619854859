// How the rows of a block are shared out among heads that need more or fewer than the table says.
#include <algorithm>
#include <cmath>

#include "state/procedural/memory.h"

namespace kvtide {
namespace {

constexpr double kLeastShare = 0.5, kMostShare = 2.0;  // of what the table gives a head

}  // namespace

// Of the next block, per layer and head in order. The strain is that of the block before: what a block needs
// is known only once it is sealed, and text changes slowly. The sum is that of the plans, and never more.
std::vector<std::int64_t> ProceduralMemory::rows_by_strain() const {
  std::vector<std::int64_t> rows;
  std::vector<std::size_t> sharing;
  std::vector<double> wanted;
  double strain = 0.0, total = 0.0, sum = 0.0;
  for (const auto& [layer, h] : heads_where([](const HeadPlan&) { return true; })) {
    const HeadPlan& p = plan(layer, h);
    rows.push_back(p.rows);
    if (spec_.adapt == Adapt::off || p.full || p.rows <= spec_.summaries) continue;
    sharing.push_back(rows.size() - 1);
    wanted.push_back(static_cast<double>(head(layer, h).strain));
    strain += wanted.back();
    total += static_cast<double>(p.rows - spec_.summaries);
  }
  if (!(strain > 0.0)) return rows;
  const double mean = strain / static_cast<double>(sharing.size());
  for (std::size_t i = 0; i < sharing.size(); ++i) {
    const auto exact = static_cast<double>(rows[sharing[i]] - spec_.summaries);
    wanted[i] = exact * std::clamp(std::sqrt(wanted[i] / mean), kLeastShare, kMostShare);
    sum += wanted[i];
  }
  for (std::size_t i = 0; i < sharing.size(); ++i) {
    const auto exact = static_cast<std::int64_t>(wanted[i] * total / sum);
    rows[sharing[i]] = std::min(spec_.block - 1, spec_.summaries + exact);
  }
  return rows;
}

}  // namespace kvtide
