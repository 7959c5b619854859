#include "validate/worst.h"

#include <algorithm>

namespace kvtide {

WorstTable worst_of(const ValidationReport& report) {
  WorstTable out;
  for (const ScheduleResult& result : report.schedules)
    out.isolated |= !result.isolated.change_cosine.empty();
  for (std::size_t s = 0; s < report.schedules.size(); ++s) {
    const LayerTable& table = out.isolated ? report.schedules[s].isolated : report.schedules[s].chained;
    if (table.change_cosine.empty()) continue;
    if (out.cells.empty()) {
      out.layers = table.layers;
      out.tokens = static_cast<std::int64_t>(report.tokens.size());
      for (int layer = 0; layer < out.layers; ++layer)
        for (Pos t = 0; t < out.tokens; ++t) out.cells.push_back({layer, t, s, 1.0, 0.0});
    }
    for (std::int64_t layer = 0; layer < table.layers; ++layer)
      for (Pos t = 0; t < table.tokens; ++t) {
        const auto at = static_cast<std::size_t>(layer * table.tokens + t);
        WorstCell& cell = out.cells[static_cast<std::size_t>(layer * out.tokens + t)];
        const double cosine = static_cast<double>(table.change_cosine[at]);
        if (cosine < cell.cosine) cell.cosine = cosine, cell.schedule = s;
        cell.max_abs = std::max(cell.max_abs, static_cast<double>(table.change_error[at]));
      }
  }
  return out;
}

std::vector<WorstCell> WorstTable::worst(std::size_t count) const {
  std::vector<WorstCell> sorted = cells;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const WorstCell& a, const WorstCell& b) { return a.cosine < b.cosine; });
  sorted.resize(std::min(count, sorted.size()));
  return sorted;
}

std::vector<int> WorstTable::layers_worst_first() const {
  std::vector<std::pair<double, int>> order;
  for (int layer = 0; layer < layers; ++layer) {
    double cosine = 1.0;
    for (Pos t = 0; t < tokens; ++t) cosine = std::min(cosine, at(layer, t).cosine);
    order.emplace_back(cosine, layer);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<int> out;
  for (const auto& [cosine, layer] : order) out.push_back(layer);
  return out;
}

}  // namespace kvtide
