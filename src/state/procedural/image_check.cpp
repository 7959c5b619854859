// Images, and numbers of snapshots, that no memory can have are refused.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/procedural/image.h"
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
