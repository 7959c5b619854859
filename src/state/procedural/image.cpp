#include "state/procedural/image.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/procedural/head_rows.h"
#include "state/procedural/memory.h"
#include "state/procedural/references.h"

namespace kvtide {
namespace {

bool has_mean_key(const ProceduralImage& image, const ProceduralSpec& spec, const HeadPlan& plan) {
  return image.sealed > 0 && image.mean_keys && is_spread(spec, plan);
}

// The one place that knows the order: the heads that have rows, layer by layer, then the mean keys of those that
// have one, then the references.
template <class Heads, class Rows, class Head, class Mean, class Queries>
void in_tensor_order(const Heads& heads, Rows&& rows, Head&& head, Mean&& mean, Queries&& references) {
  for (std::size_t layer = 0; layer < heads.size(); ++layer)
    for (std::size_t h = 0; h < heads[layer].size(); ++h)
      if (rows(layer, h) > 0) head(layer, h);
  for (std::size_t layer = 0; layer < heads.size(); ++layer)
    for (std::size_t h = 0; h < heads[layer].size(); ++h) mean(layer, h);
  references();
}

}  // namespace

std::vector<ProceduralTensor> procedural_tensors(const ProceduralSpec& spec, const ProceduralImage& image,
                                                 int head_dim) {
  using Type = ProceduralTensor::Type;
  std::vector<ProceduralTensor> tensors;
  const auto rows_of = [&](std::size_t layer, std::size_t h) {
    const auto& blocks = image.rows[layer][h];
    return std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  };
  // As HeadRows::parts() has them.
  const auto add_head = [&](std::size_t layer, std::size_t h) {
    const HeadPlan& plan = spec.plans[layer][h];
    const std::int64_t rows = rows_of(layer, h);
    const std::string name = cat("procedural.", layer, ".", h, ".");
    const DType type = type_of_rows(spec, plan);
    tensors.push_back({name + "k", Type::rows, {rows, head_dim}, type});
    tensors.push_back({name + "v", Type::rows, {rows, head_dim}, type});
    tensors.push_back({name + "position", Type::i32, {rows}});
    for (const char* note : note_names(rows_kind(spec, plan)))
      tensors.push_back({name + note, Type::f32, {rows}});
  };
  const auto add_mean = [&](std::size_t layer, std::size_t h) {
    if (has_mean_key(image, spec, spec.plans[layer][h]))
      tensors.push_back({cat("procedural.", layer, ".", h, ".mean"), Type::f32, {head_dim}});
  };
  in_tensor_order(spec.plans, rows_of, add_head, add_mean, [&] {
    const References::Shape shape = reference_shape(spec, head_dim);
    const std::int64_t layers = std::count(shape.layers.begin(), shape.layers.end(), true);
    if (layers == 0 || !image.observed) return;
    const std::int64_t slots = References::slots(shape);
    tensors.push_back(
        {"procedural.queries", Type::rows, {layers, slots, shape.heads, shape.head_dim}, shape.type});
    tensors.push_back({"procedural.log_mass", Type::f32, {layers, slots, shape.heads}});
  });
  return tensors;
}

ProceduralImage ProceduralMemory::image() const {
  if (spill_)
    throw Error(ErrorCode::unsupported, cat("procedural memory: rows in the spill file ", quoted(spec_.spill),
                                            " cannot be saved; run without a spill file to have snapshots"));
  ProceduralImage image;
  image.sealed = sealed_;
  for (const Block& block : blocks_)
    image.blocks.push_back({block.first, block.last, block.level, block.tick, block.reach});
  for (const FullBlock& block : full_) image.full.push_back(block.first);
  for (const FullBlock& block : whole_) image.whole.push_back(block.first);
  for (const auto& layer : heads_) {
    image.rows.emplace_back();
    image.lost.emplace_back();
    image.strain.emplace_back();
    for (const Head& h : layer) {
      image.rows.back().push_back(h.block_rows);
      image.lost.back().push_back(h.lost);
      image.strain.back().push_back(static_cast<double>(h.strain));
    }
  }
  image.observed = references_->begun();
  image.mean_keys = has_mean_keys();
  image.retained = references_->retained();
  image.retain_stride = references_->retain_stride();
  image.blocks_seen = references_->blocks_seen();
  image.counts = counts_;
  image.counts.log_mass_error = mass_error_sum_;
  image.mass_errors = mass_errors_;
  return image;
}

void ProceduralMemory::restore(const ProceduralImage& image, Pos position) {
  check(image, spec_, position, head_dim_of(spec_, layers_));
  clear();
  sealed_ = image.sealed;
  for (const auto& block : image.blocks)
    blocks_.push_back({block.first, block.last, block.level, 0, block.tick, block.reach});
  for (const Pos first : image.full) full_.push_back({first, 0});
  for (const Pos first : image.whole) whole_.push_back({first, 0});
  for (std::size_t layer = 0; layer < heads_.size(); ++layer)
    for (std::size_t h = 0; h < heads_[layer].size(); ++h) {
      Head& target = heads_[layer][h];
      target.block_rows = image.rows[layer][h];
      target.lost = image.lost[layer][h];
      target.strain = static_cast<float>(image.strain[layer][h]);
      if (has_mean_key(image, spec_, spec_.plans[layer][h]))
        target.mean_key.resize(static_cast<std::size_t>(layers_[layer].head_dim));
      std::int64_t rows = 0;
      for (const std::int64_t count : target.block_rows) rows += count;
      for (; rows > 0; --rows) target.rows->append({});
    }
  if (image.observed) references_->begin();
  references_->retained() = image.retained;
  references_->retain_stride() = image.retain_stride;
  references_->blocks_seen() = image.blocks_seen;
  counts_ = image.counts;
  mass_error_sum_ = counts_.log_mass_error;
  mass_errors_ = image.mass_errors;
  if (sealed_ > 0) move_blocks(last_seal());
}

// All heads in four bits have one, or none has.
bool ProceduralMemory::has_mean_keys() const {
  for (const auto& layer : heads_)
    for (const Head& h : layer)
      if (!h.mean_key.empty()) return true;
  return sealed_ == 0;
}

std::vector<std::span<const std::byte>> ProceduralMemory::payload() const {
  std::vector<std::span<const std::byte>> parts;
  const auto add_head = [&](std::size_t layer, std::size_t h) {
    for (const auto part : std::as_const(*heads_[layer][h].rows).parts()) parts.push_back(part);
  };
  in_tensor_order(
      heads_, [&](std::size_t layer, std::size_t h) { return heads_[layer][h].rows->rows(); }, add_head,
      [&](std::size_t layer, std::size_t h) {
        if (const auto& mean = heads_[layer][h].mean_key; !mean.empty())
          parts.push_back(std::as_bytes(std::span(mean)));
      },
      [&] {
        const References& references = *references_;
        if (references.queries().empty()) return;
        parts.push_back(std::span(references.queries()));
        parts.push_back(std::as_bytes(std::span(references.masses())));
      });
  return parts;
}

std::vector<std::span<std::byte>> ProceduralMemory::payload() {
  // Nobody else may see what will be written.
  for (auto& layer : heads_)
    for (Head& h : layer)
      if (h.rows->rows() > 0) writable(h);
  make_references_writable();
  std::vector<std::span<std::byte>> parts;
  for (const auto part : std::as_const(*this).payload())
    parts.emplace_back(const_cast<std::byte*>(part.data()), part.size());
  return parts;
}

}  // namespace kvtide
