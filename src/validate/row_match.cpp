#include "validate/row_match.h"

#include <algorithm>
#include <cmath>

#include "validate/measure.h"

namespace kvtide {

std::vector<float> rotated(std::span<const float> key, std::span<const double> frequencies, Pos from,
                           Pos to) {
  std::vector<float> out(key.begin(), key.end());
  const std::size_t pairs = frequencies.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(to - from) * frequencies[i];
    const double a = static_cast<double>(key[i]), b = static_cast<double>(key[i + pairs]);
    out[i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    out[i + pairs] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
  }
  return out;
}

std::vector<double> widened(std::span<const double> frequencies, std::int64_t pairs) {
  // frequency i is base ^ (-i / pairs)
  const double base =
      frequencies.size() < 2 ? 10000.0 : std::pow(frequencies[1], -static_cast<double>(frequencies.size()));
  std::vector<double> out;
  for (std::int64_t i = 0; i < pairs; ++i)
    out.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
  return out;
}

RowMatch find_row(std::span<const float> row, const RowQuestion& q) {
  const auto part = [&](int layer, std::int64_t head, Pos token) {
    const HeldRows& rows = q.golden.rows[static_cast<std::size_t>(layer)];
    return q.key ? rows.key(head, token) : rows.value(head, token);
  };
  const HeldRows& own = q.golden.rows[static_cast<std::size_t>(q.layer)];
  const auto right = part(q.layer, q.head, q.token);
  RowMatch best;
  if (std::all_of(row.begin(), row.end(), [](float x) { return x == 0.0f; })) {
    best.kind = RowMatch::zero;
    return best;
  }
  // Rows that are alike this closely are the same: texts repeat tokens, and then the nearest one is meant.
  const double same = q.tolerance / 30.0;
  double distance = q.tolerance;
  const auto offer = [&](std::span<const float> candidate, RowMatch match) {
    const double found = std::max(same, likeness(row, candidate).relative());
    if (found < distance) distance = found, best = match;
  };
  const std::int64_t tokens = q.golden.size();
  for (std::int64_t away = 0; away < tokens; ++away)
    for (const Pos t : {q.token - away, q.token + away}) {
      if (t < 0 || t >= tokens) continue;
      if (away > 0) offer(part(q.layer, q.head, t), {RowMatch::token, q.head, t, q.layer, 0});
      for (std::int64_t head = 0; head < own.kv_heads; ++head)
        if (head != q.head) offer(part(q.layer, head, t), {RowMatch::head, head, t, q.layer, 0});
    }
  if (q.key && !q.frequencies.empty()) {
    for (Pos to = 0; to < tokens + 2; ++to)
      if (to != q.token)
        offer(rotated(right, q.frequencies, q.token, to), {RowMatch::position, q.head, to, q.layer, 0});
    const auto plain = rotated(right, q.frequencies, q.token, 0);
    for (const std::int64_t pairs : {own.head_dim / 2, own.head_dim / 4, own.head_dim / 8})
      if (pairs > 0 && pairs != static_cast<std::int64_t>(q.frequencies.size()))
        offer(rotated(plain, widened(q.frequencies, pairs), 0, q.token),
              {RowMatch::wide, q.head, q.token, q.layer, pairs});
  }
  if (best.kind != RowMatch::unknown) return best;
  for (int layer = 0; layer < static_cast<int>(q.golden.layers); ++layer) {
    const HeldRows& other = q.golden.rows[static_cast<std::size_t>(layer)];
    if (layer == q.layer || other.head_dim != own.head_dim) continue;
    for (std::int64_t head = 0; head < other.kv_heads; ++head)
      for (Pos t = 0; t < tokens; ++t) offer(part(layer, head, t), {RowMatch::layer, head, t, layer, 0});
  }
  return best;
}

}  // namespace kvtide
