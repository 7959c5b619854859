#include "state/procedural/reference_rows.h"

#include <algorithm>
#include <cmath>

namespace kvtide {
namespace {

constexpr double kHorizonBits = 12.0;  // references stand up to 2^12 positions ahead

// The van der Corput sequence in base 2: 0, 1/2, 1/4, 3/4, 1/8 ...
double van_der_corput(std::int64_t i) {
  double result = 0.0, place = 0.5;
  for (; i > 0; i /= 2, place *= 0.5) result += place * static_cast<double>(i % 2);
  return result;
}

}  // namespace

void turn_row(float* x, const std::vector<double>& frequencies, Pos by) {
  const std::size_t pairs = frequencies.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(by) * frequencies[i];
    const auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
    const float a = x[i], b = x[pairs + i];
    x[i] = a * c - b * s;
    x[pairs + i] = b * c + a * s;
  }
}

void add_turn(const std::vector<double>& frequencies, Pos by, std::vector<float>& angles) {
  for (const double f : frequencies)
    angles.push_back(static_cast<float>(std::cos(static_cast<double>(by) * f)));
  for (const double f : frequencies)
    angles.push_back(static_cast<float>(std::sin(static_cast<double>(by) * f)));
}

AskedAhead place_ahead(const ProceduralSpec& spec, std::vector<Pos> positions, Pos position,
                       const std::vector<double>& frequencies) {
  double bits = kHorizonBits;
  if (spec.far_from > 0)
    bits = std::min(
        bits, std::log2(static_cast<double>(std::max<Pos>(2, spec.far_from - spec.window - spec.block))));
  AskedAhead asked;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto ahead = static_cast<Pos>(std::exp2(bits * van_der_corput(static_cast<std::int64_t>(i))));
    const auto turn = static_cast<double>(position - 1 + ahead);
    for (const double f : frequencies) {
      asked.cosine.push_back(static_cast<float>(std::cos(turn * f)));
      asked.sine.push_back(static_cast<float>(std::sin(turn * f)));
    }
  }
  asked.positions = std::move(positions);
  return asked;
}

std::vector<const AskedAhead*> place_ahead(const ProceduralSpec& spec, const std::vector<Pos>& positions,
                                           Pos position, std::vector<AskedAhead>& made) {
  std::vector<std::size_t> of_layer;
  std::vector<std::size_t> first;  // layer for which each was made
  for (std::size_t layer = 0; layer < spec.plans.size(); ++layer) {
    std::size_t found = 0;
    while (found < first.size() && spec.frequencies[first[found]] != spec.frequencies[layer]) ++found;
    if (found == first.size() && !spec.plans[layer].empty()) {
      first.push_back(layer);
      made.push_back(place_ahead(spec, positions, position, spec.frequencies[layer]));
    }
    of_layer.push_back(found);
  }
  std::vector<const AskedAhead*> asked;
  for (const std::size_t index : of_layer) asked.push_back(index < made.size() ? &made[index] : nullptr);
  return asked;
}

ReferenceRows ask(const Kernels& kernels, const ProceduralSpec& spec, const References& references,
                  const AskedAhead& asked, int layer, int head, std::int64_t padded_dim) {
  const int group = spec.query_heads / static_cast<int>(spec.plans[static_cast<std::size_t>(layer)].size());
  const auto pairs = static_cast<std::int64_t>(spec.frequencies[static_cast<std::size_t>(layer)].size());
  const auto count = static_cast<std::int64_t>(asked.positions.size());
  ReferenceRows rows;
  rows.count = count * group;
  rows.queries.resize(static_cast<std::size_t>(rows.count * padded_dim));
  rows.log_mass.resize(static_cast<std::size_t>(rows.count));
  // The queries of one position lie side by side.
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t place = references.place(layer, asked.positions[static_cast<std::size_t>(i)]);
    for (int g = 0; g < group; ++g) {
      const std::int64_t to = g * count + i;
      float* query = rows.queries.data() + to * padded_dim;
      references.query(kernels, place, head * group + g, query);
      kernels.elementwise.rope(query, asked.cosine.data() + i * pairs, asked.sine.data() + i * pairs, pairs);
      rows.log_mass[static_cast<std::size_t>(to)] = references.log_mass(place, head * group + g);
    }
  }
  return rows;
}

}  // namespace kvtide
