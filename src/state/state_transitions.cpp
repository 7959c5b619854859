// state_transitions.cpp: plan and apply of KvState.
#include <algorithm>

#include "base/stopwatch.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "state/state.h"

namespace kvtide {
namespace {

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;

}  // namespace

const char* transition_name(const Transition& transition) noexcept {
  return std::visit(Match{[](const Expand&) { return "expand"; }, [](const Compact&) { return "compact"; },
                          [](const Truncate&) { return "truncate"; }, [](const Drop&) { return "drop"; },
                          [](const SetAttention&) { return "attention"; }},
                    transition);
}

// Why the transition cannot be made; "" when it can.
std::string KvState::why_not(const Transition& transition) const {
  // What has no sequence axis has no capacity; and it holds something of every position.
  const auto fixed = [&](const char* what) {
    return spec_.layers.empty()
               ? cat("cannot ", what, ": tensor ", quoted(spec_.recurrent[0].name), " has no sequence axis")
               : std::string();
  };
  const auto expand = [&](const Expand& t) -> std::string {
    if (std::string why = fixed("expand"); !why.empty()) return why;
    if (t.capacity < spec_.capacity)
      return cat("cannot expand to ", t.capacity, " rows: the capacity is ", spec_.capacity,
                 "; compact lowers it");
    if (spec_.positions && t.capacity > *spec_.positions)
      return cat("cannot expand to ", t.capacity, " rows: the model has learned ", *spec_.positions,
                 " positions, and there are no others");
    if (t.capacity > (std::int64_t{1} << 31))
      return cat("cannot expand to ", t.capacity, " rows: at most 2^31");
    return "";
  };
  const auto compact = [&](const Compact& t) -> std::string {
    if (std::string why = fixed("compact"); !why.empty()) return why;
    if (t.capacity < 1) return cat("cannot compact to ", t.capacity, " rows: at least 1 is needed");
    if (t.capacity > spec_.capacity)
      return cat("cannot compact to ", t.capacity, " rows: the capacity is ", spec_.capacity,
                 "; expand raises it");
    if (rows() > t.capacity) return cat("cannot compact to ", t.capacity, " rows: ", rows(), " are in use");
    return "";
  };
  const auto truncate = [&](const Truncate& t) -> std::string {
    if (t.length < 0 || t.length > position())
      return cat("cannot truncate to ", t.length, " positions: the state has read ", position());
    const std::string why = t.nearest ? "" : why_not_back_to(t.length);
    if (why.empty()) return why;
    Pos smallest = t.length + 1;
    while (!why_not_back_to(smallest).empty()) ++smallest;
    const Pos nearest = nearest_to(t.length);
    return cat("cannot truncate to ", t.length, " positions: ", why, "; the smallest that works is ",
               smallest, nearest > 0 ? cat(", the nearest before it ", nearest) : "");
  };
  const auto drop = [&](const Drop& t) -> std::string {
    const PosRange r = t.range;
    if (past_) return "cannot drop positions: a procedural memory holds blocks, not single positions";
    if (r.first < 0 || r.first >= r.last || r.last > position())
      return cat("cannot drop positions ", r.first, " to ", r.last, ": the state has read ", position());
    if (!recurrent_.empty())
      return cat("cannot drop positions ", r.first, " to ", r.last, ": tensor ",
                 quoted(spec_.recurrent[0].name), " holds something of all of them");
    if (t.close_gap && !spec_.rotary) return "cannot close the gap: the model's positions are absolute";
    if (t.close_gap && r.last == position())
      return "cannot close a gap at the end: truncate takes back positions";
    if (spec_.rolling && r.first < spec_.rolling->sinks)
      return cat("cannot drop positions ", r.first, " to ", r.last, ": the first ", spec_.rolling->sinks,
                 " are sinks and stay");
    return "";
  };
  const auto attention = [&](const SetAttention& t) -> std::string {
    if (t.size && *t.size < 1)
      return cat("an attention size of ", *t.size, " sees nothing; at least 1 is needed");
    if (!t.automatic) return "";
    if (t.size) return "an attention size is either given or adapts itself";
    const AutoAttention& range = *t.automatic;
    if (range.smallest < 1 || range.smallest > range.largest)
      return cat("an attention size cannot adapt itself from ", range.smallest, " to ", range.largest);
    if (std::all_of(spec_.layers.begin(), spec_.layers.end(),
                    [](const LayerSpec& l) { return l.window.has_value(); }))
      return "an attention size cannot adapt itself where every layer has a window of its own";
    return "";
  };
  return std::visit(Match{expand, compact, truncate, drop, attention}, transition);
}

std::string KvState::why_not_back_to(Pos length) const {
  if (length == 0 || length == position() || held_.segments.empty()) return "";
  if (past_ && length < last_change())
    return cat("the memory of ", last_change(), " positions was compressed");
  if (!recurrent_.knows(length))
    return cat("tensor ", quoted(spec_.recurrent[0].name), " of that position was not kept (a slack of ",
               spec_.slack, " keeps that many)");
  // Before the first thing that was dropped, the text is what it was; after the last, it stays as it was
  // edited.
  const Segment& newest = held_.segments.back();
  const Pos edited_end = newest.shift > 0 ? newest.last + newest.shift : newest.first;
  if (!before_edits(held_, length) && length < edited_end)
    return cat("text before position ", edited_end, " was dropped");
  const Holdings left = back_to(held_, length);
  if (const std::int64_t needed = past_ ? 0 : count_rows(spec_, left); needed > spec_.capacity)
    return cat(needed, " rows would be in use, of ", spec_.capacity);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto window = kept_window(spec_, spec_.layers[i]);
    if (!window) continue;
    const Pos keep = spec_.layers[i].window || !spec_.rolling ? 0 : spec_.rolling->sinks;
    if (length < held_.edited && held_.forgotten[i] > keep)
      return cat("a gap was closed at position ", held_.edited, ", when a window had moved on");
    // What the next query would see has to be there.
    for (const Segment& segment : left.segments) {
      const Pos first =
          std::max({segment.first, keep, left.forgotten[i], length - *window + 1 - segment.shift});
      const Pos gone = std::min(segment.last, released_[i]);  // but for what checkpoints keep
      if (first < gone && !holds(i, first, gone)) return "a window has moved on";
    }
  }
  return "";
}

TransitionPlan KvState::plan(const Transition& transition) const {
  TransitionPlan plan(transition);
  plan.generation_ = generation_;
  plan.refusal_ = why_not(transition);
  TransitionRecord& record = plan.expected_;
  record.name = transition_name(transition);
  record.position = position();
  record.rows_kept = rows();
  record.capacity_before = record.capacity_after = spec_.capacity;
  record.bytes_before = record.bytes_after = held_bytes();
  if (!plan.refusal_.empty()) return plan;
  if (const auto* t = std::get_if<Expand>(&transition)) record.capacity_after = t->capacity;
  if (const auto* t = std::get_if<Compact>(&transition)) record.capacity_after = t->capacity;
  if (const auto* t = std::get_if<Truncate>(&transition)) {
    const Pos left = t->nearest ? nearest_to(t->length) : t->length;
    record.rows_kept =
        past_ && left > 0 ? rows() - (position() - left) : count_rows(spec_, back_to(held_, left));
    record.read_again = t->length - left;
  }
  if (const auto* t = std::get_if<Drop>(&transition))
    record.rows_kept = count_rows(spec_, without(spec_, held_, t->range, t->close_gap));
  record.rows_dropped = rows() - record.rows_kept;
  return plan;
}

TransitionRecord KvState::apply(const TransitionPlan& plan) {
  if (!plan) throw Error(ErrorCode::invalid_argument, plan.refusal());
  if (plan.generation_ != generation_)
    throw Error(ErrorCode::invalid_argument,
                cat("this plan to ", plan.expected_.name, " was made before the state changed; plan again"));
  const Stopwatch watch;
  TransitionRecord record = plan.expected_;
  perform(plan.transition_);
  ++generation_;
  record.milliseconds = watch.ms();
  record.bytes_after = held_bytes();
  return record;
}

void KvState::perform(const Transition& transition) {
  const auto capacity = [&](std::int64_t rows) { spec_.capacity = rows; };
  const auto truncate = [&](const Truncate& t) {
    const Pos length = t.nearest ? nearest_to(t.length) : t.length;
    Holdings left = back_to(held_, length);
    std::vector<Pos> released = released_behind(length);
    if (length == 0 && past_) past_->clear();  // the last that may fail
    for (auto& layer : layers_) layer.truncate(length);
    released_ = std::move(released);
    held_ = std::move(left);
    recurrent_.back_to(length);
    std::erase_if(checkpoints_, [&](Pos at) { return at > length; });
    sweeps_ = true;
    if (!adapting_) return;
    adapting_->samples.resize(static_cast<std::size_t>(samples_at(*adapting_, length)));
    attention_size_ = kvtide::attention_size(*adapting_);
  };
  const auto drop = [&](const Drop& t) {
    Holdings left = without(spec_, held_, t.range, t.close_gap);
    for (auto& layer : layers_) layer.prepare_drop();  // the last that may fail
    for (auto& layer : layers_) layer.drop(t.range.first, t.range.last);
    held_ = std::move(left);
    // What a checkpoint before the edit needs is there still, but for windows that had moved on when a gap was closed.
    const bool closed = t.close_gap;
    std::erase_if(checkpoints_, [&](Pos at) { return closed || !before_edits(held_, at); });
    sweeps_ = true;
  };
  const auto attention = [&](const SetAttention& t) {
    if (!t.automatic) {
      adapting_.reset();
      attention_size_ = t.size;
      return;
    }
    adapting_ = begin_log(spec_.rolling ? within(*t.automatic, *spec_.rolling) : *t.automatic, position());
    attention_size_ = adapting_->range.smallest;
  };
  std::visit(Match{[&](const Expand& t) { capacity(t.capacity); },
                   [&](const Compact& t) { capacity(t.capacity); }, truncate, drop, attention},
             transition);
}

}  // namespace kvtide
