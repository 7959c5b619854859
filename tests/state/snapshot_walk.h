// snapshot_walk.h: a loaded snapshot used in every way a state can be used, for telling whether a file that
// was accepted gave a sound state.
#pragma once

#include <string>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/snapshot.h"
#include "tests/base/memory_files.h"
#include "tests/state/procedural/procedural_state.h"

namespace kvtide::testing {

// Adds up all bytes, so that a sanitizer sees every one of them read.
inline std::uint64_t sum_of(const std::byte* bytes, std::int64_t size) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += static_cast<std::uint64_t>(bytes[i]);
  return sum;
}

// Reads on until a few more blocks are sealed, merged and thinned, where that takes moments. What comes out
// of rows that are not numbers is none either: it has to come out in order only.
inline void seal_some(KvState& state) {
  const KvSpec& spec = state.spec();
  if (!spec.procedural || !spec.recurrent.empty() || spec.layers.size() > 4) return;
  const ProceduralSpec& p = *spec.procedural;
  if (p.block > 64 || p.window + spec.slack > 256 || p.query_heads > 16) return;
  for (const LayerSpec& layer : spec.layers)
    if (layer.kv_heads > 8 || layer.head_dim > 64) return;
  ThreadPool pool(1);
  feed(state, pool, 3 * p.block);
}

// "" or what is wrong.
inline std::string walk(Snapshot& snapshot) {
  KvState& state = snapshot.state;
  const StateImage image = state.image();
  const auto layers = static_cast<int>(image.spec.layers.size());
  std::uint64_t sum = 0;
  for (int layer = 0; layer < layers; ++layer)
    for (int head = 0; head < image.spec.layers[static_cast<std::size_t>(layer)].kv_heads; ++head)
      for (const LayerRows::Run& run : state.layer_rows(layer).runs(0, image.position)) {
        for (const KvPart part : {KvPart::keys, KvPart::values}) {
          const RowSpan rows = state.rows_of_head(layer, head, part, {run.first, run.last});
          for (std::int64_t r = 0; r < rows.rows; ++r) sum += sum_of(rows.row(r).data(), rows.row_bytes);
        }
      }
  // Saved again and loaded, it is the same.
  MemoryFiles files;
  save_snapshot(files, "again", state, snapshot.extras);
  try {
    const Snapshot again = load_snapshot(files, "again");
    const StateImage other = again.state.image();
    if (other.position != image.position || other.segments != image.segments || other.runs != image.runs ||
        other.released != image.released || other.forgotten != image.forgotten ||
        other.edited != image.edited)
      return "it is another state after it was saved again";
    if (again.extras.tokens != snapshot.extras.tokens) return "it has other tokens after it was saved again";
  } catch (const Error& error) {
    // Two states that claim an enormous capacity do not fit into the address space.
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
  // Whatever plan() accepts works, and the rows that a query is then given are there.
  const auto read_step = [&] {
    try {
      KvState::Step step = state.begin(1);
      for (int layer = 0; layer < layers; ++layer)
        for (const auto& head : step.spans(layer))
          for (const Span& span : head) {
            sum += sum_of(span.keys, span.rows * span.key_stride);
            sum += sum_of(span.values, span.rows * span.value_stride);
          }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::context_full && error.code() != ErrorCode::out_of_memory) throw;
    }
  };
  read_step();
  KvState later = state.fork();
  try {
    seal_some(later);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::context_full && error.code() != ErrorCode::out_of_memory) throw;
  }
  const Pos end = state.position();
  for (const Transition& transition :
       {Transition(Drop{{end / 2, end / 2 + 1}, true}), Transition(Truncate{end - 1}),
        Transition(Truncate{end / 2}), Transition(Compact{state.rows()}), Transition(SetAttention{2}),
        Transition(Truncate{0})})
    if (const TransitionPlan plan = state.plan(transition)) {
      state.apply(plan);
      read_step();
    }
  return state.position() > end || sum == ~std::uint64_t{0} ? "it cannot be counted" : "";
}

}  // namespace kvtide::testing
