// state_transitions.cpp: plan and apply of KvState.
#include <algorithm>
#include <chrono>

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
  const auto expand = [&](const Expand& t) -> std::string {
    if (t.capacity < spec_.capacity)
      return cat("cannot expand to ", t.capacity, " rows: the capacity is ", spec_.capacity,
                 "; compact lowers it");
    if (t.capacity > (std::int64_t{1} << 31))
      return cat("cannot expand to ", t.capacity, " rows: at most 2^31");
    return "";
  };
  const auto compact = [&](const Compact& t) -> std::string {
    if (t.capacity < 1) return cat("cannot compact to ", t.capacity, " rows: at least 1 is needed");
    if (t.capacity > spec_.capacity)
      return cat("cannot compact to ", t.capacity, " rows: the capacity is ", spec_.capacity,
                 "; expand raises it");
    if (rows() > t.capacity) return cat("cannot compact to ", t.capacity, " rows: ", rows(), " are in use");
    return "";
  };
  const auto truncate = [&](const Truncate& t) -> std::string {
    if (t.length < 0 || t.length > position_)
      return cat("cannot truncate to ", t.length, " positions: the state has read ", position_);
    // A state that only saw `length` tokens would still hold what its next query can see.
    StateSpec without_slack = spec_;
    without_slack.slack = 0;
    Pos smallest = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const LayerSpec& layer = spec_.layers[i];
      const Pos needed = oldest_needed(without_slack, layer, t.length);
      if (needed >= released_[i] || needed >= t.length) continue;
      const std::int64_t window = layer.window ? *layer.window : spec_.rolling->window;
      smallest = std::max(smallest, released_[i] + window - 1);
    }
    if (smallest > 0)
      return cat("cannot truncate to ", t.length,
                 " positions: a window has moved on; the smallest that works is ",
                 std::min(smallest, position_));
    for (std::size_t i = 0; i + 1 < segments_.size(); ++i)
      if (t.length < segments_[i + 1].first && t.length > 0)
        return cat("cannot truncate to ", t.length, " positions: text before position ",
                   segments_[i + 1].first, " was dropped; the smallest that works is ",
                   segments_.back().first);
    return "";
  };
  const auto drop = [&](const Drop& t) -> std::string {
    const PosRange r = t.range;
    if (r.first < 0 || r.first >= r.last || r.last > position_)
      return cat("cannot drop positions ", r.first, " to ", r.last, ": the state has read ", position_);
    if (t.close_gap && !spec_.rotary) return "cannot close the gap: the model's positions are absolute";
    if (t.close_gap && r.last == position_)
      return "cannot close a gap at the end: truncate takes back positions";
    if (spec_.rolling && r.first < spec_.rolling->sinks)
      return cat("cannot drop positions ", r.first, " to ", r.last, ": the first ", spec_.rolling->sinks,
                 " are sinks and stay");
    return "";
  };
  const auto attention = [&](const SetAttention& t) -> std::string {
    if (t.size && *t.size < 1)
      return cat("an attention size of ", *t.size, " sees nothing; at least 1 is needed");
    return "";
  };
  return std::visit(Match{expand, compact, truncate, drop, attention}, transition);
}

TransitionPlan KvState::plan(const Transition& transition) const {
  TransitionPlan plan(transition);
  plan.generation_ = generation_;
  plan.refusal_ = why_not(transition);
  TransitionRecord& record = plan.expected_;
  record.name = transition_name(transition);
  record.position = position_;
  record.rows_kept = rows();
  record.capacity_before = record.capacity_after = spec_.capacity;
  record.bytes_before = record.bytes_after = held_bytes();
  if (!plan.refusal_.empty()) return plan;
  if (const auto* t = std::get_if<Expand>(&transition)) record.capacity_after = t->capacity;
  if (const auto* t = std::get_if<Compact>(&transition)) record.capacity_after = t->capacity;
  if (const auto* t = std::get_if<Truncate>(&transition)) record.rows_kept = rows_up_to(t->length);
  if (const auto* t = std::get_if<Drop>(&transition)) {
    std::int64_t gone = 0;
    for (const Segment& s : segments_)
      gone += std::max<Pos>(0, std::min(s.last, t->range.last) - std::max(s.first, t->range.first));
    record.rows_kept = rows() - gone;
  }
  record.rows_dropped = rows() - record.rows_kept;
  return plan;
}

TransitionRecord KvState::apply(const TransitionPlan& plan) {
  if (!plan) throw Error(ErrorCode::invalid_argument, plan.refusal());
  if (plan.generation_ != generation_)
    throw Error(ErrorCode::invalid_argument,
                cat("this plan to ", plan.expected_.name, " was made before the state changed; plan again"));
  const auto start = std::chrono::steady_clock::now();
  perform(plan.transition_);
  ++generation_;
  TransitionRecord record = plan.expected_;
  record.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  record.bytes_after = held_bytes();
  return record;
}

void KvState::perform(const Transition& transition) {
  const auto capacity = [&](std::int64_t rows) { spec_.capacity = rows; };
  const auto truncate = [&](const Truncate& t) {
    for (auto& layer : layers_) layer.truncate(t.length);
    std::erase_if(segments_, [&](const Segment& s) { return s.first >= t.length; });
    if (!segments_.empty()) segments_.back().last = std::min(segments_.back().last, t.length);
    for (Pos& released : released_) released = std::min(released, t.length);
    position_ = t.length;
  };
  const auto drop = [&](const Drop& t) {
    for (auto& layer : layers_) layer.drop(t.range.first, t.range.last);
    std::vector<Segment> kept;
    const std::int64_t gap = t.close_gap ? t.range.size() : 0;
    for (const Segment& s : segments_) {
      if (s.first < t.range.first) kept.push_back({s.first, std::min(s.last, t.range.first), s.shift + gap});
      if (s.last > t.range.last) kept.push_back({std::max(s.first, t.range.last), s.last, s.shift});
    }
    segments_ = std::move(kept);
  };
  std::visit(
      Match{[&](const Expand& t) { capacity(t.capacity); }, [&](const Compact& t) { capacity(t.capacity); },
            truncate, drop, [&](const SetAttention& t) { attention_size_ = t.size; }},
      transition);
}

}  // namespace kvtide
