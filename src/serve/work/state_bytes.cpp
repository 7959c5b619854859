#include "serve/work/state_bytes.h"

#include <algorithm>
#include <functional>

#include "kernels/attend_kernel.h"
#include "state/spec/bytes.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace state_bytes {

int layers_of(const KvState& kv) { return static_cast<int>(kv.spec().layers.size()); }

}  // namespace state_bytes

void StateBytes::add(const State& state) {
  const KvState& kv = state.internals().kv;
  for (int layer = 0; layer < state_bytes::layers_of(kv); ++layer) {
    const LayerRows& rows = kv.layer_rows(layer);
    const std::vector<LayerRows::Run> runs = rows.runs(0, kv.position());
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const LayerRows::Run& run = runs[i];
      const bool ends_extent = i + 1 == runs.size() || runs[i + 1].extent != run.extent;
      // What others wrote behind the rows held here stays until the extent has one owner again, and so does what was
      // let go of while there were several.
      const std::int64_t last = ends_extent ? std::max(run.last, run.extent->used.load()) : run.last;
      rows_.push_back({run.extent, {run.first, last}, run.extent->owes, rows.format()});
    }
  }
  if (kv.past() != nullptr) others_ += kv.past()->held_bytes();
  const RecurrentTensors& recurrent = kv.recurrent();
  for (const Pos position : recurrent.positions())
    for (std::size_t i = 0; i < recurrent.count(); ++i)
      if (const auto value = recurrent.bytes_at(position, i); values_.insert(value.data()).second)
        others_ += static_cast<std::int64_t>(value.size());
  others_ += static_cast<std::int64_t>(state.tokens().capacity() * sizeof(TokenId) +
                                       state.logits().size() * sizeof(float));
}

// `of_extent` is not empty, and its rows ascend.
std::int64_t StateBytes::bytes_of(std::span<const Rows> of_extent) {
  const bool in_one = std::any_of(of_extent.begin(), of_extent.end(), [](const Rows& r) { return r.in_one; });
  const RowFormat& format = of_extent.front().format;
  std::int64_t bytes = 0;
  PosRange joined = of_extent.front().held;
  for (const Rows& rows : of_extent) {
    if (rows.held.first > joined.last && !in_one) {
      bytes += page_bytes(format, joined.first, joined.last);
      joined = rows.held;
    }
    joined.last = std::max(joined.last, rows.held.last);
  }
  return bytes + page_bytes(format, joined.first, joined.last);
}

std::int64_t StateBytes::total() {
  std::sort(rows_.begin(), rows_.end(), [](const Rows& a, const Rows& b) {
    return a.extent != b.extent ? std::less<>()(a.extent, b.extent) : a.held.first < b.held.first;
  });
  std::int64_t bytes = others_;
  for (auto first = rows_.begin(); first != rows_.end();) {
    const auto last =
        std::find_if(first, rows_.end(), [&](const Rows& r) { return r.extent != first->extent; });
    bytes += bytes_of({first, last});
    first = last;
  }
  return bytes;
}

std::int64_t growth_bytes(const State& state, std::int64_t from, std::int64_t tokens) {
  const KvState& kv = state.internals().kv;
  const KvSpec& spec = kv.spec();
  // The first row that is written begins a tile, whose earlier rows are copied.
  const std::int64_t first = from / kTileRows * kTileRows;
  std::int64_t bytes = 0, checkpoints = 0;
  for (int layer = 0; layer < state_bytes::layers_of(kv); ++layer) {
    const LayerSpec& of = spec.layers[static_cast<std::size_t>(layer)];
    std::int64_t rows = std::max<std::int64_t>(0, tokens - first);
    const std::int64_t beside = spec.slack + spec.max_step + 2 * kTileRows;
    if (of.window)
      rows = std::min(rows, *of.window + beside);
    else if (spec.rolling)
      rows = std::min(rows, spec.rolling->sinks + spec.rolling->window + beside);
    bytes += page_bytes(row_format(spec, of), first, first + rows);
    checkpoints += page_bytes(row_format(spec, of), first + rows, std::max(first + rows, tokens));
  }
  const std::int64_t carried = carried_bytes(spec), every = spec.checkpoints.every;
  bytes += std::min(tokens, spec.slack + 2) * carried;
  // The end of the prompt has a checkpoint, too.
  checkpoints += ((every > 0 ? tokens / every : 0) + 2) * carried;
  bytes += std::min(checkpoints, spec.checkpoints.budget);
  return bytes + tokens * static_cast<std::int64_t>(sizeof(TokenId));
}

std::int64_t shadow_bytes(const State& state, std::int64_t tokens) {
  const KvSpec& spec = state.internals().kv.spec();
  std::int64_t bytes = 0;
  for (const LayerSpec& of : spec.layers)
    if (!of.window) bytes += page_bytes(row_format(spec, of), 0, tokens);
  return bytes;
}

}  // namespace kvtide::serve
