#include "state/checkpoints.h"

#include <algorithm>
#include <limits>

#include "kernels/attend_kernel.h"
#include "state/arrange.h"
#include "state/spec/bytes.h"
#include "state/state.h"

namespace kvtide {

bool needs_checkpoints(const KvSpec& spec) {
  if (spec.procedural) return false;
  return spec.rolling || !spec.recurrent.empty() ||
         std::any_of(spec.layers.begin(), spec.layers.end(),
                     [](const LayerSpec& layer) { return layer.window.has_value(); });
}

PosRange kept_for(const KvSpec& spec, const LayerSpec& layer, Pos at) {
  if (!kept_window(spec, layer)) return {at, at};
  return {oldest_needed(spec, layer, at) / kTileRows * kTileRows, at};
}

std::int64_t checkpoint_bytes(const KvSpec& spec, const std::vector<Pos>& positions) {
  std::int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    const RowFormat format = row_format(spec, layer);
    PosRange joined{0, 0};
    for (const Pos at : positions) {
      const PosRange kept = kept_for(spec, layer, at);
      if (kept.first > joined.last) {
        bytes += page_bytes(format, joined.first, joined.last);
        joined = kept;
      }
      joined.last = kept.last;
    }
    if (kept_window(spec, layer)) bytes += page_bytes(format, joined.first, joined.last);
  }
  return bytes + static_cast<std::int64_t>(positions.size()) * carried_bytes(spec);
}

std::vector<Pos> within_budget(const KvSpec& spec, std::vector<Pos> positions, Pos now) {
  std::vector<Pos> gone;
  while (!positions.empty() && checkpoint_bytes(spec, positions) > spec.checkpoints.budget) {
    double least = std::numeric_limits<double>::infinity();
    std::size_t goes = 0;
    for (std::size_t i = 0; i < positions.size() && positions[i] < now; ++i) {
      const Pos before = i == 0 ? 0 : positions[i - 1];
      const double cost =
          static_cast<double>(positions[i] - before) / static_cast<double>(now - positions[i]);
      if (cost >= least) continue;
      least = cost;
      goes = i;
    }
    gone.push_back(positions[goes]);
    positions.erase(positions.begin() + static_cast<std::ptrdiff_t>(goes));
  }
  // Long windows overlap: many a checkpoint went without giving a byte back.
  std::sort(gone.rbegin(), gone.rend());
  for (const Pos at : gone) {
    const auto place = positions.insert(std::upper_bound(positions.begin(), positions.end(), at), at);
    if (checkpoint_bytes(spec, positions) > spec.checkpoints.budget) positions.erase(place);
  }
  return positions;
}

std::int64_t until_checkpoint(const KvSpec& spec, Pos position) {
  const std::int64_t every = spec.checkpoints.every;
  return every == 0 || !needs_checkpoints(spec) ? 0 : every - position % every;
}

}  // namespace kvtide
