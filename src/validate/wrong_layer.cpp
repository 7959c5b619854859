#include "validate/wrong_layer.h"

#include <algorithm>

namespace kvtide {

std::vector<std::size_t> WrongLayer::schedules() const {
  std::vector<std::size_t> out;
  for (const auto& [schedule, worst] : at) out.push_back(schedule);
  return out;
}

std::size_t WrongLayer::telling(const Inspection& in) const {
  return std::min_element(at.begin(), at.end(),
                          [&](const auto& a, const auto& b) {
                            return std::pair(a.second.first, -in.schedules[a.first].longest()) <
                                   std::pair(b.second.first, -in.schedules[b.first].longest());
                          })
      ->first;
}

std::optional<WrongLayer> lowest_wrong(const Inspection& in, bool with_rows) {
  if (!in.judges_layers()) return std::nullopt;
  WrongLayer wrong;
  wrong.isolated = in.isolates();
  wrong.layer = in.layers();
  const auto each = [&](auto&& body) {
    for (const Difference& d : in.differences)
      if (d.isolated == wrong.isolated && d.layer >= 0) body(d);
    if (with_rows)
      for (const Difference& d : in.row_differences)
        if (d.isolated == wrong.isolated) body(d);
  };
  each([&](const Difference& d) { wrong.layer = std::min(wrong.layer, d.layer); });
  if (wrong.layer == in.layers()) return std::nullopt;
  each([&](const Difference& d) {
    wrong.layers.insert(d.layer);
    if (d.layer != wrong.layer) return;
    auto& at = wrong.at.emplace(d.schedule, std::pair(d.token, d.cosine)).first->second;
    at = {std::min(at.first, d.token), std::min(at.second, d.cosine)};
  });
  return wrong;
}

}  // namespace kvtide
