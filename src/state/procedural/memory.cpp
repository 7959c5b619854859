#include "state/procedural/memory.h"

#include <algorithm>
#include <chrono>

#include "state/procedural/seal_head.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 21;  // address space of one head: no memory by itself

References::Shape reference_shape(const ProceduralSpec& spec,
                                  const std::vector<ProceduralMemory::LayerShape>& layers) {
  References::Shape shape;
  for (const auto& heads : spec.heads) {
    bool plain = false;
    for (const HeadPlan& plan : heads) plain = plain || !plan.full;
    shape.layers.push_back(plain);
  }
  shape.heads = spec.query_heads;
  shape.head_dim = layers.front().head_dim;
  shape.stride = reference_stride(spec);
  shape.span = spec.window + spec.block;
  return shape;
}

}  // namespace

HeadRows::Kind rows_kind(const ProceduralSpec& spec, const HeadPlan& plan) {
  if (!plan.full) return HeadRows::Kind::summaries;
  return spec.full_rows > 0 ? HeadRows::Kind::exact_scored : HeadRows::Kind::exact;
}

ProceduralMemory::ProceduralMemory(const ProceduralSpec& spec, const std::vector<LayerShape>& layers)
    : spec_(spec), layers_(layers), references_(std::make_shared<References>(reference_shape(spec, layers))) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    auto& heads = heads_.emplace_back();
    const std::int64_t bytes = dtype_bytes(spec_.row_type, layers_[layer].head_dim);
    for (std::size_t h = 0; h < spec_.heads[layer].size(); ++h)
      heads.push_back(
          {std::make_shared<HeadRows>(rows_kind(spec_, spec_.heads[layer][h]), bytes, bytes, kMostRows), {}});
  }
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
                      .position = position};
  struct Item {
    int layer, head;
    SealedHead sealed;
  };
  std::vector<Item> items;
  for (std::size_t layer = 0; layer < heads_.size(); ++layer)
    for (std::size_t h = 0; h < heads_[layer].size(); ++h)
      items.push_back({static_cast<int>(layer), static_cast<int>(h), {}});
  pool.run(static_cast<std::int64_t>(items.size()), [&](std::int64_t i) {
    Item& item = items[static_cast<std::size_t>(i)];
    item.sealed = seal_head(request, kernels, layers[static_cast<std::size_t>(item.layer)], item.layer,
                            item.head, layers_[static_cast<std::size_t>(item.layer)].head_dim);
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
    mass_errors_.push_back(static_cast<double>(item.sealed.log_mass_error));
  }
  blocks_.push_back({first, last, 1, 0});
  full_.push_back({first, 0});
  references_->retain(first, last);
  sealed_ = last;
  ++counts_.blocks_sealed;
  if (spec_.levels > 0) consolidate(pool, kernels, position);
  thin_full_heads();
  move_blocks(position);
  counts_.seal_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  double sum = 0.0;
  for (const double error : mass_errors_) sum += error;
  counts.log_mass_error = mass_errors_.empty() ? 0.0 : sum / static_cast<double>(mass_errors_.size());
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
  sealed_ = 0;
  sink_shift_ = 0;
  make_references_writable();
  references_->clear();
  counts_ = {};
  mass_errors_.clear();
}

}  // namespace kvtide
