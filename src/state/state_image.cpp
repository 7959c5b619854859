// state_image.cpp: a KvState as plain data and back.
#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/stages.h"
#include "state/state.h"

namespace kvtide {
namespace {

[[noreturn]] void refuse_image(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "KV state image: " + why);
}

// Ranges must be non-empty, ascending, apart, and inside [0, end].
template <class Range>
void check_ascending(const std::vector<Range>& ranges, Pos end, const char* what) {
  Pos before = 0;
  for (const auto& range : ranges) {
    if (range.first < before || range.first >= range.last || range.last > end)
      refuse_image(
          cat(what, " ", range.first, " to ", range.last, " overlaps the one before or leaves 0 to ", end));
    before = range.last;
  }
}

void check(const StateImage& image) {
  check(image.spec);
  constexpr Pos kFarthest = Pos{1} << 40;
  if (image.position < 0 || image.position > kFarthest)
    refuse_image(cat("position ", image.position, " is out of range"));
  if (image.attention_size && *image.attention_size < 1)
    refuse_image("the attention size must be at least 1");
  if (image.adapting) {
    const AutoAttentionLog& log = *image.adapting;
    check(log.range);
    if (log.first < 0 || samples_at(log, image.position) != static_cast<std::int64_t>(log.samples.size()))
      refuse_image(
          cat(log.samples.size(), " samples of the attention do not belong to position ", image.position));
    for (const std::int32_t share : log.samples)
      if (share < 0 || share > kWholeShare)
        refuse_image(cat("a share of the attention of ", share, " millionths"));
    if (image.attention_size != attention_size(log))
      refuse_image("the attention size is not what its samples say");
  }
  check_ascending(image.segments, image.position, "the segment");
  for (const Segment& segment : image.segments)
    if (segment.shift < 0 || segment.shift > image.position - segment.last)
      refuse_image(cat("a shift of ", segment.shift, " moves positions beyond the newest one"));
  if (image.released.size() != image.spec.layers.size() ||
      image.forgotten.size() != image.spec.layers.size() || image.runs.size() != image.spec.layers.size())
    refuse_image(cat("needs one entry per layer: ", image.spec.layers.size()));
  for (const auto* positions : {&image.released, &image.forgotten})
    for (const Pos p : *positions)
      if (p < 0 || p > image.position)
        refuse_image(cat("released or forgotten position ", p, " is out of range"));
  if (image.edited < 0 || image.edited > image.position)
    refuse_image(cat("edited at ", image.edited, " is out of range"));
  Pos before = -1;
  for (const Pos p : image.recurrent) {
    if (p <= before || p > image.position)
      refuse_image(cat("the recurrent tensors' position ", p, " is out of order"));
    before = p;
  }
  if (image.spec.recurrent.empty() ? !image.recurrent.empty() : before != image.position)
    refuse_image("the recurrent tensors are not those of the position");
  for (const auto& runs : image.runs) check_ascending(runs, image.position, "the run");
  before = 0;
  for (const Pos p : image.checkpoints) {
    if (p <= before || p > image.position) refuse_image(cat("the checkpoint at ", p, " is out of order"));
    before = p;
  }
  if (image.past.has_value() != image.spec.procedural.has_value())
    refuse_image("the blocks of a procedural memory and its spec come together");
  if (!has_row_types(image.spec, row_types_at(image.spec, image.position)))
    refuse_image(cat("rows of ", dtype_info(image.spec.key_type).name, " and ",
                     dtype_info(image.spec.value_type).name, " do not belong to position ", image.position));
  if (image.past)
    check(*image.past, memory_spec(image.spec), image.position, whole_layer(image.spec.layers).head_dim);
}

}  // namespace

StateImage KvState::image() const {
  if (!is_settled())
    throw Error(ErrorCode::out_of_memory,
                "procedural memory: memory ended in a seal, which has to be made again before it is saved");
  StateImage image{spec_,       held_.position,  attention_size_, adapting_, held_.segments,
                   released_,   held_.forgotten, held_.edited,    {},        recurrent_.positions(),
                   checkpoints_};
  for (const auto& layer : layers_) {
    std::vector<PosRange>& runs = image.runs.emplace_back();
    for (const auto& run : layer.runs(0, position())) {
      if (!runs.empty() && runs.back().last == run.first)
        runs.back().last = run.last;
      else
        runs.push_back({run.first, run.last});
    }
  }
  if (past_) image.past = past_->image();
  return image;
}

KvState::KvState(const StateImage& image) : KvState((check(image), image.spec)) {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    for (const PosRange& run : image.runs[i]) layers_[i].open(run.first, run.last);
  if (!recurrent_.empty()) recurrent_.restore(image.recurrent);
  attention_size_ = image.attention_size;
  adapting_ = image.adapting;
  held_ = {image.position, image.segments, image.forgotten, image.edited};
  released_ = image.released;
  checkpoints_ = image.checkpoints;
  if (past_) past_->restore(*image.past, position());
  // Everything that a query can see has to be there, now and when positions are taken back.
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Pos sinks = spec_.rolling && !spec_.layers[i].window ? spec_.rolling->sinks : 0;
    const auto require = [&](Pos first, Pos last) {
      std::int64_t held = 0;
      for (const auto& rows : layers_[i].runs(first, last)) held += rows.last - rows.first;
      if (held < last - first)
        refuse_image(cat("layer ", i, " lacks rows of the positions ", first, " to ", last));
    };
    if (past_ && past_->holds(static_cast<int>(i))) {
      require(0, std::min(past_->spec().sinks, position()));
      require(std::min(std::max(past_->spec().sinks, past_->exact_from()), position()), position());
      continue;
    }
    for (const auto& run : visible_runs(held_.segments, visible(i, std::nullopt), position()))
      require(run.rows.first, run.rows.last);
    for (const Segment& segment : held_.segments) {
      require(segment.first, std::min(segment.last, sinks));
      require(std::max(segment.first, released_[i]), segment.last);
    }
  }
  for (const Pos at : checkpoints_)
    if (const std::string why = why_not_back_to(at); !why.empty())
      refuse_image(cat("the checkpoint at ", at, " cannot be gone back to: ", why));
}

RowSpan KvState::rows_of_head(int layer, int kv_head, KvPart part, const PosRange& run) {
  const LayerRows& rows = layers_[static_cast<std::size_t>(layer)];
  const RowFormat& format = rows.format();
  Extent& extent = *rows.runs(run.first, run.last).front().extent;
  if (part == KvPart::keys)
    return {extent.key(kv_head, run.first), run.size(), format.key_bytes, format.key_stride()};
  return {extent.value(kv_head, run.first), run.size(), format.value_bytes, format.value_stride()};
}

ConstRowSpan KvState::rows_of_head(int layer, int kv_head, KvPart part, const PosRange& run) const {
  const RowSpan rows = const_cast<KvState*>(this)->rows_of_head(layer, kv_head, part, run);
  return {rows.data, rows.rows, rows.row_bytes, rows.stride};
}

}  // namespace kvtide
