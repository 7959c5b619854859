#include "serve/work/state_bytes.h"

#include <algorithm>

#include "kernels/attend_kernel.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace state_bytes {

int layers_of(const KvState& kv) { return static_cast<int>(kv.spec().layers.size()); }

}  // namespace state_bytes

void StateBytes::add(const State& state) {
  const KvState& kv = state.internals().kv;
  for (int layer = 0; layer < state_bytes::layers_of(kv); ++layer) {
    const LayerRows& rows = kv.layer_rows(layer);
    for (const LayerRows::Run& run : rows.runs(0, kv.position())) {
      // What others wrote behind the rows held here stays until the extent has one owner again.
      const std::int64_t last = std::max(run.last, run.extent->used.load());
      const auto [at, is_new] = extents_.try_emplace(run.extent, Held{run.first, last, rows.format()});
      if (is_new) continue;
      at->second.first = std::min(at->second.first, run.first);
      at->second.last = std::max(at->second.last, last);
    }
  }
  if (kv.past() != nullptr) others_ += kv.past()->held_bytes();
  others_ += kv.recurrent().held_bytes();
  others_ += static_cast<std::int64_t>(state.tokens().capacity() * sizeof(TokenId) +
                                       state.logits().size() * sizeof(float));
}

std::int64_t StateBytes::total() const {
  std::int64_t bytes = others_;
  for (const auto& [extent, held] : extents_) bytes += page_bytes(held.format, held.first, held.last);
  return bytes;
}

std::int64_t growth_bytes(const State& state, std::int64_t from, std::int64_t tokens) {
  const KvState& kv = state.internals().kv;
  const KvSpec& spec = kv.spec();
  // The first row that is written begins a tile, whose earlier rows are copied.
  const std::int64_t first = from / kTileRows * kTileRows;
  std::int64_t bytes = 0;
  for (int layer = 0; layer < state_bytes::layers_of(kv); ++layer) {
    const LayerSpec& of = spec.layers[static_cast<std::size_t>(layer)];
    std::int64_t rows = std::max<std::int64_t>(0, tokens - first);
    const std::int64_t beside = spec.slack + spec.max_step + 2 * kTileRows;
    if (of.window)
      rows = std::min(rows, *of.window + beside);
    else if (spec.rolling)
      rows = std::min(rows, spec.rolling->sinks + spec.rolling->window + beside);
    bytes += page_bytes(row_format(spec, of), first, first + rows);
  }
  return bytes + tokens * static_cast<std::int64_t>(sizeof(TokenId)) + kv.recurrent().held_bytes();
}

}  // namespace kvtide::serve
