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

BlockRows padded_block(std::int64_t rows, std::int64_t dim) {
  BlockRows block;
  block.rows = rows;
  block.padded_rows = (rows + 15) / 16 * 16;
  block.dim = dim;
  block.padded_dim = (dim + 15) / 16 * 16;
  block.keys.assign(static_cast<std::size_t>(block.padded_rows * block.padded_dim), 0.0f);
  block.values.assign(block.keys.size(), 0.0f);
  block.bias.assign(static_cast<std::size_t>(rows), 0.0f);
  return block;
}

// Queries of the head's group at `positions`, as they would stand in the future of a text of `position`
// tokens.
ReferenceRows ask_ahead(const ProceduralSpec& spec, const References& references,
                        const std::vector<Pos>& positions, Pos position, int layer, int head,
                        std::int64_t padded_dim) {
  const int group = spec.query_heads / static_cast<int>(spec.heads[static_cast<std::size_t>(layer)].size());
  const auto& frequencies = spec.frequencies[static_cast<std::size_t>(layer)];
  double bits = kHorizonBits;
  if (spec.far_from > 0)
    bits = std::min(
        bits, std::log2(static_cast<double>(std::max<Pos>(2, spec.far_from - spec.window - spec.block))));
  ReferenceRows rows;
  rows.count = static_cast<std::int64_t>(positions.size()) * group;
  rows.queries.assign(static_cast<std::size_t>(rows.count * padded_dim), 0.0f);
  for (int g = 0; g < group; ++g)
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::int64_t row = g * static_cast<std::int64_t>(positions.size()) + static_cast<std::int64_t>(i);
      const int query_head = head * group + g;
      float* query = rows.queries.data() + row * padded_dim;
      references.query(layer, positions[i], query_head, query);
      const auto ahead = static_cast<Pos>(std::exp2(bits * van_der_corput(static_cast<std::int64_t>(i))));
      turn_row(query, frequencies, position - 1 + ahead);
      rows.log_mass.push_back(references.log_mass(layer, positions[i], query_head));
    }
  return rows;
}

}  // namespace kvtide
