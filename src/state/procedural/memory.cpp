#include "state/procedural/memory.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>

#include "state/procedural/budget.h"
#include "state/procedural/far.h"
#include "state/procedural/seal_head.h"

namespace kvtide {
References::Shape reference_shape(const ProceduralSpec& spec, int head_dim) {
  References::Shape shape;
  for (const auto& heads : spec.heads) {
    // Heads that summarise ask them, and full heads that are thinned: for the worth of their rows.
    bool asks = false;
    for (const HeadPlan& plan : heads) asks = asks || !plan.full || spec.full_rows > 0;
    shape.layers.push_back(asks);
  }
  shape.heads = spec.query_heads;
  shape.head_dim = head_dim;
  shape.stride = reference_stride(spec);
  shape.span = spec.window + spec.block;
  return shape;
}

namespace {

// One scratch memory per thread, whichever items it takes.
template <class Body>
void each_with_summariser(ThreadPool& pool, const Kernels& kernels, std::size_t items, Body body) {
  std::atomic<std::size_t> next{0};
  pool.run(pool.threads(), [&](std::int64_t) {
    Summariser summariser(kernels.dense);
    for (std::size_t i = next++; i < items; i = next++) body(summariser, i);
  });
}

}  // namespace

HeadRows::Kind rows_kind(const ProceduralSpec& spec, const HeadPlan& plan) {
  if (!plan.full) return HeadRows::Kind::summaries;
  return spec.full_rows > 0 ? HeadRows::Kind::exact_scored : HeadRows::Kind::exact;
}

ProceduralMemory::ProceduralMemory(const ProceduralSpec& spec, const std::vector<LayerShape>& layers)
    : spec_(spec),
      layers_(layers),
      references_(std::make_shared<References>(reference_shape(spec, layers.front().head_dim))) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    auto& heads = heads_.emplace_back();
    const std::int64_t bytes = dtype_bytes(spec_.row_type, layers_[layer].head_dim);
    for (std::size_t h = 0; h < spec_.heads[layer].size(); ++h)
      heads.push_back(
          {std::make_shared<HeadRows>(rows_kind(spec_, spec_.heads[layer][h]), bytes, bytes, kMostHeadRows),
           {}});
  }
  for (const auto& plans : spec_.heads)
    for (const HeadPlan& plan : plans) has_full_heads_ = has_full_heads_ || plan.full;
  angles_.resize(layers_.size());
}

ProceduralMemory::ProceduralMemory(const ProceduralMemory& other) = default;

HeadRows& ProceduralMemory::writable(Head& head) {
  if (head.rows.use_count() > 1) head.rows = head.rows->clone();
  return *head.rows;
}

void ProceduralMemory::seal(ThreadPool& pool, const Kernels& kernels, std::span<LayerRows> layers,
                            DType key_type, DType value_type, Pos position) {
  const auto start = std::chrono::steady_clock::now();
  const Pos first = std::max(sealed_, spec_.sinks), last = sealed_ + spec_.block;
  make_references_writable();
  SealRequest request{.spec = spec_,
                      .references = *references_,
                      .key_type = key_type,
                      .value_type = value_type,
                      .first = first,
                      .last = last,
                      .asked = {}};
  std::vector<AskedAhead> made;
  request.asked = place_ahead(spec_, judges_of_seal(*references_, first, last, position), position, made);
  struct Item {
    int layer, head;
    SealedHead sealed;
  };
  std::vector<Item> items;
  for (std::size_t layer = 0; layer < heads_.size(); ++layer)
    for (std::size_t h = 0; h < heads_[layer].size(); ++h)
      items.push_back({static_cast<int>(layer), static_cast<int>(h), {}});
  each_with_summariser(pool, kernels, items.size(), [&](Summariser& summariser, std::size_t i) {
    Item& item = items[i];
    item.sealed = seal_head(request, kernels, summariser, layers[static_cast<std::size_t>(item.layer)],
                            item.layer, item.head, layers_[static_cast<std::size_t>(item.layer)].head_dim);
  });

  for (Item& item : items) {
    Head& target = head(item.layer, item.head);
    HeadRows& rows = writable(target);
    for (std::size_t i = 0; i < item.sealed.notes.size(); ++i) {
      const std::int64_t row = rows.append(item.sealed.notes[i]);
      std::copy_n(item.sealed.keys.data() + static_cast<std::int64_t>(i) * rows.key_bytes(), rows.key_bytes(),
                  rows.key(row));
      std::copy_n(item.sealed.values.data() + static_cast<std::int64_t>(i) * rows.value_bytes(),
                  rows.value_bytes(), rows.value(row));
    }
    target.block_rows.push_back(static_cast<std::int64_t>(item.sealed.notes.size()));
    if (plan(item.layer, item.head).full) continue;
    counts_.fits_rejected += item.sealed.rejected;
    double left = 0.0;  // without summaries the rows that go are lost
    for (const RowNote& note : item.sealed.notes) left += static_cast<double>(note.count);
    counts_.shed_mass += static_cast<double>(last - first) - left;
    mass_error_sum_ += static_cast<double>(item.sealed.log_mass_error);
    ++mass_errors_;
  }
  blocks_.push_back({first, last, 1, 0});
  if (has_full_heads_) full_.push_back({first, 0});
  references_->retain(first, last);
  sealed_ = last;
  ++counts_.blocks_sealed;
  if (spec_.levels > 0) consolidate(pool, kernels, position);
  thin_full_heads();
  move_blocks(position);
  counts_.seal_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void ProceduralMemory::consolidate(ThreadPool& pool, const Kernels& kernels, Pos position) {
  for (int level = 1; level <= spec_.levels; ++level) {
    // At the last level two become one: the oldest text fades.
    const bool last_level = level == spec_.levels;
    const auto merged_blocks = static_cast<std::size_t>(last_level ? kFadingBlocks : kMergedBlocks);
    const auto most = static_cast<std::size_t>(level == 1 ? kFirstLevelBlocks : kLevelBlocks);
    std::vector<std::size_t> here;
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      if (blocks_[b].level == level) here.push_back(b);
    if (here.size() < most) continue;
    const std::size_t begin = here.front(), end = begin + merged_blocks;
    std::vector<AskedAhead> made;
    const MergeRequest request{
        .spec = spec_,
        .references = *references_,
        .asked = place_ahead(spec_, judges_of_merge(*references_, sealed_, position), position, made)};
    struct Item {
      int layer, head;
      std::vector<std::int64_t> kept;
      double shed = 0.0;
    };
    std::vector<Item> items;
    for (std::size_t layer = 0; layer < heads_.size(); ++layer)
      for (std::size_t h = 0; h < heads_[layer].size(); ++h)
        if (!plan(static_cast<int>(layer), static_cast<int>(h)).full)
          items.push_back({static_cast<int>(layer), static_cast<int>(h), {}});
    each_with_summariser(pool, kernels, items.size(), [&](Summariser& summariser, std::size_t i) {
      Item& item = items[i];
      const Head& source = head(item.layer, item.head);
      std::vector<MergeBlock> merged;
      std::int64_t row = 0;
      for (std::size_t b = 0; b < end; ++b) {
        if (b >= begin) merged.push_back({row, source.block_rows[b], rotation(item.layer, blocks_[b].shift)});
        row += source.block_rows[b];
      }
      item.kept = merge_head(request, kernels, summariser, *source.rows, merged, item.layer, item.head,
                             layers_[static_cast<std::size_t>(item.layer)].head_dim);
    });
    for (Item& item : items) {
      Head& target = head(item.layer, item.head);
      std::int64_t before = 0, inside = 0;
      for (std::size_t b = 0; b < begin; ++b) before += target.block_rows[b];
      for (std::size_t b = begin; b < end; ++b) inside += target.block_rows[b];
      std::vector<std::int64_t> kept;
      for (std::int64_t row = 0; row < before; ++row) kept.push_back(row);
      kept.insert(kept.end(), item.kept.begin(), item.kept.end());
      double mass = 0.0, left = 0.0;
      for (std::int64_t row = before; row < before + inside; ++row)
        mass += static_cast<double>(target.rows->note(row).count);
      for (const std::int64_t row : item.kept) left += static_cast<double>(target.rows->note(row).count);
      counts_.shed_mass += mass - left;
      writable(target).keep(kept, before + inside);
      target.block_rows[begin] = static_cast<std::int64_t>(item.kept.size());
      target.block_rows.erase(target.block_rows.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                              target.block_rows.begin() + static_cast<std::ptrdiff_t>(end));
    }
    blocks_[begin].last = blocks_[end - 1].last;
    blocks_[begin].level = last_level ? level : level + 1;
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                  blocks_.begin() + static_cast<std::ptrdiff_t>(end));
    ++counts_.consolidations;
  }
}

// Full heads beyond their share: the newest text stays whole; of what is older, the oldest among the fullest
// blocks loses the lower half of its rows, again and again. All full heads hold the same number of rows of a
// block.
void ProceduralMemory::thin_full_heads() {
  if (spec_.full_rows == 0 || full_.empty()) return;
  std::vector<std::int64_t> sizes;
  for (std::size_t layer = 0; layer < heads_.size() && sizes.empty(); ++layer)
    for (std::size_t h = 0; h < heads_[layer].size() && sizes.empty(); ++h)
      if (spec_.heads[layer][h].full) sizes = heads_[layer][h].block_rows;
  std::int64_t rows = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const Pos intact = sealed_ - spec_.full_rows / 8 * kIntactEighths;
  while (rows > spec_.full_rows) {
    const auto old_end = sizes.begin() + std::count_if(full_.begin(), full_.end(),
                                                       [&](const FullBlock& b) { return b.first < intact; });
    auto fullest = std::max_element(sizes.begin(), old_end == sizes.begin() ? sizes.end() : old_end);
    const std::int64_t left = *fullest / 2 < kLeastFullRows ? 0 : *fullest / 2;
    if (left == 0) fullest = sizes.begin();  // all are thin: the oldest goes
    const auto block = fullest - sizes.begin();
    for (std::size_t layer = 0; layer < heads_.size(); ++layer)
      for (std::size_t h = 0; h < heads_[layer].size(); ++h)
        if (spec_.heads[layer][h].full) thin(heads_[layer][h], static_cast<std::size_t>(block), left);
    rows -= *fullest - left;
    ++counts_.thinned;
    *fullest = left;
    if (left > 0) continue;
    sizes.erase(fullest);
    full_.erase(full_.begin() + block);
  }
}

// Keeps the `left` most telling rows of a block.
void ProceduralMemory::thin(Head& target, std::size_t block, std::int64_t left) {
  const std::int64_t before =
      std::accumulate(target.block_rows.begin(),
                      target.block_rows.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
  const std::int64_t size = target.block_rows[block];
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), before);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return target.rows->note(a).score > target.rows->note(b).score;
  });
  order.resize(static_cast<std::size_t>(left));
  std::sort(order.begin(), order.end());
  counts_.shed_mass += static_cast<double>(size - left);
  std::vector<std::int64_t> kept(static_cast<std::size_t>(before));
  std::iota(kept.begin(), kept.end(), 0);
  kept.insert(kept.end(), order.begin(), order.end());
  writable(target).keep(kept, before + size);
  if (left > 0)
    target.block_rows[block] = left;
  else
    target.block_rows.erase(target.block_rows.begin() + static_cast<std::ptrdiff_t>(block));
}

// How far every block is seen from now until the next seal.
void ProceduralMemory::move_blocks(Pos position) {
  if (spec_.far_from == 0) return;
  const auto shift_of = [&](Pos first) {
    const Pos distance = position - first;
    return distance - seen_distance(spec_.far, distance, position, spec_.far_from);
  };
  turns_.clear();
  for (Block& block : blocks_) turns_.push_back(block.shift = shift_of(block.first));
  for (FullBlock& block : full_) turns_.push_back(block.shift = shift_of(block.first));
  sink_shift_ = std::max<Pos>(0, position - spec_.far_from);
  turns_.push_back(sink_shift_);
  std::sort(turns_.begin(), turns_.end());
  turns_.erase(std::unique(turns_.begin(), turns_.end()), turns_.end());
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const auto& frequencies = spec_.frequencies[layer];
    angles_[layer].clear();
    if (spec_.heads[layer].empty()) continue;
    // Layers that turn alike share the numbers of the first.
    if (layer > 0 && !angles_[0].empty() && frequencies == spec_.frequencies[0]) continue;
    angles_[layer].reserve(turns_.size() * 2 * frequencies.size());  // doubling would overrun a budget
    for (const Pos shift : turns_) {
      for (const double f : frequencies)
        angles_[layer].push_back(static_cast<float>(std::cos(static_cast<double>(shift) * f)));
      for (const double f : frequencies)
        angles_[layer].push_back(static_cast<float>(std::sin(static_cast<double>(shift) * f)));
    }
  }
}

const float* ProceduralMemory::rotation(int layer, Pos shift) const {
  if (shift == 0) return nullptr;
  const auto index = static_cast<std::size_t>(layer);
  const auto& angles = angles_[index].empty() ? angles_[0] : angles_[index];
  const auto turn = std::lower_bound(turns_.begin(), turns_.end(), shift) - turns_.begin();
  return angles.data() + turn * 2 * rotation_pairs(layer);
}

const float* ProceduralMemory::sink_rotation(int layer) const { return rotation(layer, sink_shift_); }

void ProceduralMemory::append_spans(int layer, int h, std::optional<std::int64_t> newest, Pos reader,
                                    std::vector<Span>& spans) const {
  const Head& source = head(layer, h);
  if (source.rows->rows() == 0) return;
  const bool full = plan(layer, h).full;
  const std::size_t begin_spans = spans.size();
  std::int64_t row = 0;
  for (std::size_t b = 0; b < source.block_rows.size(); ++b) {
    const std::int64_t rows = source.block_rows[b];
    const Pos first = full ? full_[b].first : blocks_[b].first;
    const Pos shift = full ? full_[b].shift : blocks_[b].shift;
    std::optional<Pos> last_reader;
    if (newest) last_reader = first + *newest - 1;
    const float* turn = rotation(layer, shift);
    const std::int64_t begin = row;
    row += rows;
    if (rows == 0 || (last_reader && reader > *last_reader)) continue;
    if (spans.size() > begin_spans) {
      Span& back = spans.back();
      const bool joins = back.rotation == turn && back.last_reader == last_reader &&
                         back.keys + back.rows * back.key_stride == source.rows->key(begin);
      if (joins) {
        back.rows += rows;
        continue;
      }
    }
    Span span;
    span.keys = source.rows->key(begin);
    span.values = source.rows->value(begin);
    span.key_type = span.value_type = spec_.row_type;
    span.key_stride = source.rows->key_bytes();
    span.value_stride = source.rows->value_bytes();
    span.rows = rows;
    span.log_mass = source.rows->bias() == nullptr ? nullptr : source.rows->bias() + begin;
    span.rotation = turn;
    span.rotation_pairs = turn == nullptr ? 0 : rotation_pairs(layer);
    span.last_reader = last_reader;
    spans.push_back(span);
  }
}

std::int64_t ProceduralMemory::held_bytes() const {
  std::int64_t bytes = references_->held_bytes();
  for (const auto& layer : heads_)
    for (const Head& h : layer) bytes += h.rows->held_bytes();
  for (const auto& angles : angles_) bytes += static_cast<std::int64_t>(angles.capacity() * sizeof(float));
  return bytes;
}

ProceduralCounts ProceduralMemory::counts() const {
  ProceduralCounts counts = counts_;
  for (std::size_t layer = 0; layer < heads_.size(); ++layer)
    for (std::size_t h = 0; h < heads_[layer].size(); ++h) {
      const Head& source = heads_[layer][h];
      if (spec_.heads[layer][h].full) {
        ++counts.full_heads;
        counts.full_rows += source.rows->rows();
        continue;
      }
      std::int64_t row = 0;
      for (std::size_t b = 0; b < source.block_rows.size(); ++b) {
        const auto level = static_cast<std::size_t>(blocks_[b].level);
        if (counts.summary_rows.size() < level) counts.summary_rows.resize(level, 0);
        for (std::int64_t i = 0; i < source.block_rows[b]; ++i, ++row) {
          if (source.rows->note(row).count > 1.0f)
            ++counts.summary_rows[level - 1];
          else
            ++counts.outlier_rows;
        }
      }
    }
  counts.log_mass_error = mass_errors_ == 0 ? 0.0 : mass_error_sum_ / static_cast<double>(mass_errors_);
  return counts;
}

void ProceduralMemory::clear() {
  for (auto& layer : heads_)
    for (Head& h : layer) {
      writable(h).clear();
      h.block_rows.clear();
    }
  blocks_.clear();
  full_.clear();
  turns_.clear();
  for (auto& angles : angles_) std::vector<float>().swap(angles);
  sealed_ = 0;
  sink_shift_ = 0;
  make_references_writable();
  references_->clear();
  counts_ = {};
  mass_error_sum_ = 0.0;
  mass_errors_ = 0;
}

}  // namespace kvtide
