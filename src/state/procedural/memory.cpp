#include "state/procedural/memory.h"

#include <algorithm>

#include "base/stopwatch.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/procedural/seal_head.h"

namespace kvtide {

References::Shape reference_shape(const ProceduralSpec& spec, int head_dim) {
  References::Shape shape;
  for (const auto& heads : spec.plans) {
    // Heads that summarise ask them. Full heads that are thinned did once, and files still hold what they asked.
    bool asks = false;
    for (const HeadPlan& plan : heads) asks = asks || rows_kind(spec, plan) != HeadRows::Kind::exact;
    shape.layers.push_back(asks);
  }
  shape.heads = spec.query_heads;
  shape.head_dim = head_dim;
  shape.stride = reference_stride(spec);
  shape.span = spec.reference_span > 0 ? spec.reference_span : spec.window + spec.block;
  shape.from = spec.reference_from;
  shape.type = spec.reference_type;
  return shape;
}

int ProceduralMemory::head_dim_of(const ProceduralSpec& spec, const std::vector<LayerShape>& layers) {
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    if (!spec.plans[layer].empty()) return layers[layer].head_dim;
  return layers.front().head_dim;
}

ProceduralMemory::ProceduralMemory(const ProceduralSpec& spec, const std::vector<LayerShape>& layers)
    : spec_(spec),
      layers_(layers),
      references_(std::make_shared<References>(reference_shape(spec, head_dim_of(spec, layers)))) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    auto& heads = heads_.emplace_back();
    for (const HeadPlan& plan : spec_.plans[layer]) {
      const std::int64_t bytes = dtype_bytes(type_of_rows(spec_, plan), layers_[layer].head_dim);
      heads.push_back({std::make_shared<HeadRows>(rows_kind(spec_, plan), bytes, bytes, kMostHeadRows),
                       {},
                       nullptr,
                       0.0,
                       0.0f,
                       {}});
    }
  }
  for (const auto& plans : spec_.plans)
    for (const HeadPlan& plan : plans) (plan.whole ? has_whole_heads_ : has_full_heads_) |= plan.full;
  angles_.resize(layers_.size());
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    turns_like_.push_back(spec_.plans[layer].empty() ? layer : turns_like(spec_, layer));
  if (!spec_.spill.empty()) spill_ = std::make_shared<SpillFile>(spec_.spill);
}

ProceduralMemory::ProceduralMemory(const ProceduralMemory& other) = default;

HeadRows& ProceduralMemory::writable(Head& head) {
  if (!sole_owner(head.rows)) head.rows = head.rows->clone();
  return *head.rows;
}

void ProceduralMemory::pin(const PosRange& range) {
  if (range.first < 0 || range.first >= range.last)
    throw Error(ErrorCode::invalid_argument,
                cat("cannot pin positions ", range.first, " to ", range.last, ": there is nothing between"));
  const Pos from = std::max(range.first, spec_.sinks);
  const Pos summarised = std::min(range.last, sealed_);
  if (pinned_within(spec_, from, summarised) < summarised - from)
    throw Error(ErrorCode::invalid_argument, cat("cannot pin positions ", range.first, " to ", range.last,
                                                 ": they are summarised already, up to position ", sealed_));
  spec_.pins = with_pin(spec_.pins, range);
}

void ProceduralMemory::seal(ThreadPool& pool, const Kernels& kernels, std::span<LayerRows> layers,
                            DType key_type, DType value_type, Pos position, const Repetition* repetition) {
  const Stopwatch watch;
  make_room_in_memory();
  const auto [first, last] = next_block();
  make_references_writable();
  struct Item {
    int layer, head;
    std::int64_t rows;
    SealedHead sealed;
  };
  std::vector<Item> items;
  const auto rows_now = rows_by_strain();
  for (const auto& [layer, h] : heads_where([](const HeadPlan&) { return true; }))
    items.push_back({layer, h, rows_now[items.size()], {}});
  std::vector<AskedAhead> made;
  const SealRequest request{
      .spec = spec_,
      .references = *references_,
      .key_type = key_type,
      .value_type = value_type,
      .spread = key_type == DType::q4_0 || value_type == DType::q4_0,
      .first = first,
      .last = last,
      .asked = place_ahead(spec_, judges_of_seal(*references_, first, last, position), position, made),
      .repetition = repetition};
  each_with_summariser(pool, kernels, items.size(), [&](Summariser& summariser, std::size_t i) {
    Item& item = items[i];
    item.sealed = seal_head(request, kernels, summariser, layers[static_cast<std::size_t>(item.layer)],
                            item.layer, item.head, layers_[static_cast<std::size_t>(item.layer)].head_dim,
                            item.rows, head(item.layer, item.head).mean_key);
  });

  for (Item& item : items) {
    Head& target = head(item.layer, item.head);
    writable(target).expect(static_cast<std::int64_t>(item.sealed.notes.size()));
    target.block_rows.reserve(target.block_rows.size() + 1);
  }
  blocks_.reserve(blocks_.size() + 1);
  full_.reserve(full_.size() + 1);
  whole_.reserve(whole_.size() + 1);
  references_->retain(first, last, position);
  // From here on nothing needs memory.
  pool.run(std::ssize(items), [&](std::int64_t i) {
    const Item& item = items[static_cast<std::size_t>(i)];
    head(item.layer, item.head).rows->append(item.sealed.notes, item.sealed.keys, item.sealed.values);
  });
  for (Item& item : items) {
    Head& target = head(item.layer, item.head);
    target.block_rows.push_back(static_cast<std::int64_t>(item.sealed.notes.size()));
    if (!item.sealed.mean_key.empty()) target.mean_key = std::move(item.sealed.mean_key);
    if (plan(item.layer, item.head).full) continue;
    target.lost += static_cast<double>(item.sealed.lost);
    target.strain = spec_.adapt == Adapt::drift ? item.sealed.log_mass_error : item.sealed.spread;
    counts_.shed_mass += static_cast<double>(item.sealed.lost);
    counts_.fits_rejected += item.sealed.rejected;
    mass_error_sum_ += static_cast<double>(item.sealed.log_mass_error);
    ++mass_errors_;
  }
  blocks_.push_back({.first = first, .last = last, .tick = counts_.consolidations});
  if (has_full_heads_) full_.push_back({first, 0});
  if (has_whole_heads_) whole_.push_back({first, 0});
  sealed_ = last;
  ++counts_.blocks_sealed;
  newest_seal_.clear();
  due_ = Due::thinning;
  seal_seconds_ = watch.seconds();
}

void ProceduralMemory::settle(ThreadPool& pool, const Kernels& kernels, std::span<const TokenId> tokens) {
  const Stopwatch watch;
  const Pos position = last_seal();
  if (due_ == Due::thinning) {
    expect_event();
    thin_full_heads(tokens);
    note_event(ProceduralEvent::Kind::seal, blocks_.back(), position, seal_seconds_ + watch.seconds());
    due_ = Due::consolidating;
  }
  if (spec_.levels > 0) consolidate(pool, kernels, position);
  shed();
  move_blocks(position);
#ifndef NDEBUG
  audit();
#endif
  ProceduralCounts& after = newest_seal_.back().after;
  after.summary_rows.reserve(static_cast<std::size_t>(std::max(1, spec_.levels)));  // a fork's has no room
  counts_.seal_seconds += seal_seconds_ + watch.seconds();
  count(after);
  due_ = Due::nothing;
}

void ProceduralMemory::expect_event() {
  newest_seal_.reserve(newest_seal_.size() + 1);
  next_event_.after.summary_rows.reserve(static_cast<std::size_t>(std::max(1, spec_.levels)));
}

void ProceduralMemory::note_event(ProceduralEvent::Kind kind, const Block& block, Pos position,
                                  double seconds) noexcept {
  ProceduralEvent& event = next_event_;
  event.kind = kind;
  event.level = block.level;
  event.position = position;
  event.block = {block.first, block.last};
  event.seconds = seconds;
  count(event.after);
  newest_seal_.push_back(std::move(event));
}

std::int64_t ProceduralMemory::held_bytes() const {
  std::int64_t bytes = references_->held_bytes();
  for (const auto& layer : heads_)
    for (const Head& h : layer)
      bytes += h.rows->held_bytes() + static_cast<std::int64_t>(h.mean_key.capacity() * sizeof(float));
  for (const auto& angles : angles_) bytes += static_cast<std::int64_t>(angles.capacity() * sizeof(float));
  return bytes;
}

void ProceduralMemory::clear() {
  for (auto& layer : heads_)
    for (Head& h : layer) writable(h);
  make_references_writable();
  // From here on nothing needs memory.
  for (auto& layer : heads_)
    for (Head& h : layer) {
      h.rows->clear();
      h.block_rows.clear();
      h.spilled.reset();
      h.lost = 0.0;
      h.strain = 0.0f;
      std::vector<float>().swap(h.mean_key);
    }
  blocks_.clear();
  full_.clear();
  whole_.clear();
  newest_seal_.clear();
  turns_.clear();
  for (auto& angles : angles_) std::vector<float>().swap(angles);
  sealed_ = 0;
  sink_shift_ = 0;
  due_ = Due::nothing;
  references_->clear();
  counts_ = {};
  mass_error_sum_ = 0.0;
  mass_errors_ = 0;
}

}  // namespace kvtide
