#include "state/procedural/image.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/procedural/head_rows.h"
#include "state/procedural/memory.h"
#include "state/procedural/references.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostBlocks = std::int64_t{1} << 26;
constexpr Pos kMostSealed = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostReferenceBytes = std::int64_t{1} << 40;

[[noreturn]] void refuse_procedural_image(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "procedural memory: " + why);
}

// most: rows of a block of the head's list.
void check_head(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& most,
                const std::string& name) {
  if (rows.size() != most.size())
    refuse_procedural_image(cat(name, " has ", rows.size(), " blocks of ", most.size()));
  std::int64_t sum = 0;
  for (std::size_t b = 0; b < rows.size(); ++b) {
    if (rows[b] < 0 || rows[b] > most[b])
      refuse_procedural_image(cat(name, " has a block of ", rows[b], " rows"));
    sum += rows[b];
  }
  if (sum > kMostHeadRows) refuse_procedural_image(cat(name, " has ", sum, " rows; ", kMostHeadRows, " fit"));
}

// Of plain heads: in order, of a level that there is, and within reach.
void check_blocks(const ProceduralImage& image, const ProceduralSpec& spec) {
  Pos before = 0;
  for (const auto& block : image.blocks) {
    if (block.first < before || block.first >= block.last || block.last > image.sealed)
      refuse_procedural_image(
          cat("the block ", block.first, " to ", block.last, " overlaps the one before or is not sealed"));
    if (block.level < 1 || block.level > std::max(1, spec.levels))
      refuse_procedural_image(cat("has a block of level ", block.level, "; there are ", spec.levels));
    const Pos older = first_sealed_before(spec, block.last) - block.first;  // what its older parts took up
    if (block.reach < 0 || block.reach > std::max<Pos>(0, older))
      refuse_procedural_image(cat("the block ", block.first, " to ", block.last, " cannot reach ",
                                  block.reach, " positions before its newest part"));
    before = block.last;
  }
  if (spec.levels > 0 && static_cast<std::int64_t>(image.blocks.size()) >= most_blocks(spec.levels))
    refuse_procedural_image(cat("has ", image.blocks.size(), " blocks, of which two would have merged"));
}

// Of full heads, by where they begin.
void check_full_blocks(const ProceduralImage& image) {
  for (const auto* list : {&image.full, &image.whole}) {
    Pos before = -1;
    for (const Pos first : *list) {
      if (first <= before || first >= image.sealed)
        refuse_procedural_image(cat("the block at ", first, " is out of order"));
      before = first;
    }
  }
}

void check_losses(const ProceduralImage& image, const ProceduralSpec& spec) {
  if (image.lost.size() != spec.plans.size() || image.strain.size() != spec.plans.size())
    refuse_procedural_image("needs the losses and strains of every layer");
  for (std::size_t layer = 0; layer < spec.plans.size(); ++layer)
    for (const auto* numbers : {&image.lost[layer], &image.strain[layer]}) {
      if (numbers->size() != spec.plans[layer].size())
        refuse_procedural_image("needs the losses and strains of every head");
      for (const double number : *numbers)
        if (!(number >= 0.0 && number <= static_cast<double>(std::numeric_limits<float>::max())))
          refuse_procedural_image("a loss or strain is no number that it can be");
    }
}

void check_rows(const ProceduralImage& image, const ProceduralSpec& spec) {
  if (image.rows.size() != spec.plans.size())
    refuse_procedural_image(cat("needs the rows of ", spec.plans.size(), " layers"));
  // The rows of full heads, which are thinned alike, and of those that never thin out.
  const std::vector<std::int64_t>*thinned = nullptr, *whole = nullptr;
  for (std::size_t layer = 0; layer < spec.plans.size(); ++layer) {
    if (image.rows[layer].size() != spec.plans[layer].size())
      refuse_procedural_image(
          cat("layer ", layer, " needs the rows of ", spec.plans[layer].size(), " heads"));
    for (std::size_t h = 0; h < spec.plans[layer].size(); ++h) {
      const HeadPlan& plan = spec.plans[layer][h];
      const auto& rows = image.rows[layer][h];
      std::vector<std::int64_t> most(plan.whole ? image.whole.size() : image.full.size(), spec.block);
      if (!plan.full) most.clear();
      for (std::size_t b = 0; !plan.full && b < image.blocks.size(); ++b)
        most.push_back((spec.adapt == Adapt::off ? plan.rows : spec.block) +
                       pinned_within(spec, image.blocks[b].first, image.blocks[b].last));
      check_head(rows, most, cat("layer ", layer, ", head ", h));
      if (!plan.full) continue;
      const std::vector<std::int64_t>*& alike = plan.whole ? whole : thinned;
      if (alike != nullptr && *alike != rows)
        refuse_procedural_image(
            cat("layer ", layer, ", head ", h, " has other rows than the full heads before it"));
      alike = &rows;
      const std::int64_t sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
      if (!plan.whole && spec.full_rows > 0 && sum > spec.full_rows + pinned_within(spec, 0, image.sealed))
        refuse_procedural_image(
            cat("layer ", layer, ", head ", h, " has ", sum, " rows of ", spec.full_rows));
    }
  }
  if ((thinned == nullptr && !image.full.empty()) || (whole == nullptr && !image.whole.empty()))
    refuse_procedural_image("has blocks of full heads, but no full head");
}

void check_references(const ProceduralImage& image, const ProceduralSpec& spec, Pos position, int head_dim) {
  if (image.retain_stride < 1 || image.retain_stride > kMostBlocks || image.blocks_seen < 0)
    refuse_procedural_image("the references' strides are out of range");
  if (!image.observed && position > spec.reference_from)
    refuse_procedural_image(cat("has no references, which begin at position ", spec.reference_from));
  if (static_cast<std::int64_t>(image.retained.size()) > References::kMostRetained)
    refuse_procedural_image(
        cat(image.retained.size(), " references stay; ", References::kMostRetained, " fit"));
  Pos before = -1;
  for (const Pos p : image.retained) {
    if (p <= before || p >= position)
      refuse_procedural_image(cat("the reference at ", p, " is out of order"));
    before = p;
  }
  // Factors are bounded one by one, so that the product is.
  const double bytes = static_cast<double>(reference_shape(spec, head_dim).span) *
                       static_cast<double>(spec.plans.size()) * spec.query_heads * head_dim;
  if (bytes > static_cast<double>(kMostReferenceBytes))
    refuse_procedural_image("its references would not fit any memory");
}

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

void check(const ProceduralImage& image, const ProceduralSpec& spec, Pos position, int head_dim) {
  const bool staged = stage_at(spec, position) != nullptr;  // nothing is sealed yet
  if (image.sealed < 0 || image.sealed % spec.block != 0 ||
      image.sealed > (staged ? 0 : std::max<Pos>(0, position - spec.window)) ||
      (!staged && position - image.sealed >= spec.window + spec.block))
    refuse_procedural_image(
        cat("blocks up to position ", image.sealed, " do not belong to a text of ", position));
  if (image.sealed > kMostSealed)
    refuse_procedural_image(cat("position ", image.sealed, " does not fit a row's note"));
  if (static_cast<std::int64_t>(image.blocks.size()) > kMostBlocks ||
      static_cast<std::int64_t>(image.full.size()) > kMostBlocks)
    refuse_procedural_image("has too many blocks");
  check_blocks(image, spec);
  check_full_blocks(image);
  check_losses(image, spec);
  check_rows(image, spec);
  check_references(image, spec, position, head_dim);
}

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

void ProceduralMemory::check_payload() const {
  for (const auto& layer : heads_)
    for (const Head& h : layer)
      for (std::int64_t row = 0; row < h.rows->rows(); ++row) {
        const RowNote note = h.rows->note(row);
        if (note.position < 0 || note.position >= sealed_)
          refuse_procedural_image(
              cat("a row of position ", note.position, " among those of the first ", sealed_));
        if (!std::isfinite(note.bias) || !std::isfinite(note.score) || !std::isfinite(note.count) ||
            note.count < 0.0f)
          refuse_procedural_image("a row's bias, count or score is not a number that it can have");
      }
  for (const auto& layer : heads_)
    for (const Head& h : layer)
      for (const float mean : h.mean_key)
        if (!std::isfinite(mean)) refuse_procedural_image("a mean key is not finite");
  for (const float mass : std::as_const(*references_).masses())
    if (!std::isfinite(mass)) refuse_procedural_image("a reference's log mass is not finite");
  const References& references = *references_;
  const DType type = references.shape().type;
  const auto queries = static_cast<std::int64_t>(references.masses().size());
  if (!scales_finite(type, references.queries().data(), queries * references.shape().head_dim))
    refuse_procedural_image("a reference's query is not finite");
}

}  // namespace kvtide
