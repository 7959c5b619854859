// state_changes.cpp: what a procedural state does at fixed positions: it ends a stage, seals, rewrites its rows.
#include <algorithm>

#include "base/stopwatch.h"
#include "state/procedural/stages.h"
#include "state/rows/row_rewriter.h"
#include "state/state.h"
#include "tensor/element_type.h"

namespace kvtide {
bool KvState::is_settled() const {
  if (!past_) return true;
  return past_->is_settled() && next_change() > position() &&
         has_row_types(spec_, row_types_at(spec_, position()));
}

Pos KvState::next_change() const {
  const RowStage* stage = stage_at(*spec_.procedural, position());
  return stage != nullptr ? stage->until : past_->next_seal();
}

Pos KvState::last_change() const {
  Pos last = past_->last_seal();
  for (const RowStage& stage : spec_.procedural->stages)
    if (stage.until <= position()) last = std::max(last, stage.until);
  return last;
}

void KvState::seal_if_due(ThreadPool& pool, const Kernels& kernels, std::span<const TokenId> tokens,
                          const Repeat& repeat) {
  if (is_settled()) return;
  if (!changing_) changes_.clear();
  changing_ = true;
  ++generation_;
  if (stage_at(*spec_.procedural, position()) == nullptr) seal_blocks(pool, kernels, tokens, repeat);
  rewrite_rows(pool, row_types_at(spec_, position()));
  changing_ = false;
}

void KvState::seal_blocks(ThreadPool& pool, const Kernels& kernels, std::span<const TokenId> tokens,
                          const Repeat& repeat) {
  while (!past_->is_settled() || past_->next_seal() <= position()) {
    if (past_->is_settled()) {
      const bool repeated = repeat && past_->spec().score == RowScore::repetition;
      past_->seal(pool, kernels, layers_, spec_.key_type, spec_.value_type, position(),
                  repeated ? repeat(past_->next_block()) : nullptr);
    }
    past_->settle(pool, kernels, tokens);
    bytes_peak_ = std::max(bytes_peak_, held_bytes());  // the block is there twice
    changes_.insert(changes_.end(), past_->newest_seal().begin(), past_->newest_seal().end());
    // Where a stage ends the rows of a block make room for the next one; later those of a step do.
    if (past_->next_seal() > position()) return;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      if (past_->holds(static_cast<int>(layer))) drop_sealed(layer, past_->exact_from());
  }
}

// Layer by layer: when memory ends, those that are done stay done, and the types change with the last.
void KvState::rewrite_rows(ThreadPool& pool, const RowStage& types) {
  if (has_row_types(spec_, types)) return;
  const Stopwatch watch;
  KvSpec wanted = spec_;
  set_row_types(wanted, types);
  std::vector<LayerRows> empty = rows_of(wanted);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerSpec& layer = spec_.layers[i];
    LayerRows& rows = empty[i];
    if (layers_[i].format() == rows.format()) continue;
    const bool was = is_spread(spec_), becomes = is_spread(wanted);
    const RowRewriter keys({spec_.key_type, was}, {types.key_type, becomes}, layer.head_dim);
    const RowRewriter values({spec_.value_type, was}, {types.value_type, becomes}, layer.head_dim);
    const auto rewrite = [&](const LayerRows::Run& run) {
      pool.run(layer.kv_heads, [&](std::int64_t item) {
        const auto head = static_cast<int>(item);
        for (Pos p = run.first; p < run.last; ++p) {
          keys(run.extent->key(head, p), rows.key(head, p));
          values(run.extent->value(head, p), rows.value(head, p));
        }
      });
      bytes_peak_ = std::max(bytes_peak_, held_bytes() + rows.held_bytes());
    };
    const std::vector<LayerRows::Run> runs = layers_[i].runs(0, position());
    std::size_t newest = 0;  // the first run behind the last gap
    for (std::size_t r = 1; r < runs.size(); ++r)
      if (runs[r].first != runs[r - 1].last) newest = r;
    for (std::size_t r = 0; r < newest; ++r) {  // sinks
      rows.open(runs[r].first, runs[r].last);
      rewrite(runs[r]);
    }
    if (!runs.empty()) {
      rows.open(runs[newest].first, runs.back().last);
      rows.truncate(runs[newest].first + 1);
      layers_[i].prepare_drop();
      // From here on nothing needs memory: there is room for all rows, and they go as soon as they are rewritten.
      for (Pos from = runs[newest].first; from < runs.back().last; from += kRewrittenAtOnce) {
        const Pos to = std::min(from + kRewrittenAtOnce, runs.back().last);
        rows.open(from, to);
        for (std::size_t r = newest; r < runs.size(); ++r) {
          const LayerRows::Run part{runs[r].extent, std::max(from, runs[r].first),
                                    std::min(to, runs[r].last)};
          if (part.first < part.last) rewrite(part);
        }
        layers_[i].drop(from, to);
      }
    }
    layers_[i] = std::move(rows);
  }
  ProceduralEvent event;
  event.kind = ProceduralEvent::Kind::row_type;
  event.position = position();
  event.block = {past_->exact_from(), position()};
  event.seconds = watch.seconds();
  event.after = past_->counts();
  event.key_type = element_type_of(types.key_type);
  event.value_type = element_type_of(types.value_type);
  changes_.push_back(std::move(event));
  set_row_types(spec_, types);
}

}  // namespace kvtide
