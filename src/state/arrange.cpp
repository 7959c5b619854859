#include "state/arrange.h"

#include <algorithm>

namespace kvtide {
namespace {

// Oldest first, and the sinks before everything.
template <class Action>
void each_visible_run(const std::vector<Segment>& segments, const Visibility& visible, Pos reader,
                      Action action) {
  const Pos oldest = visible.window ? std::max<Pos>(0, reader - *visible.window + 1) : 0;
  for (const bool sink : {true, false})
    for (const Segment& segment : segments) {
      Segment cut = segment;
      if (sink) {
        cut.last = std::min(cut.last, visible.sinks);
      } else {
        cut.first = std::max({cut.first, visible.sinks, visible.forgotten, oldest - segment.shift});
      }
      if (cut.first < cut.last) action(VisibleRun{cut, sink});
    }
}

}  // namespace

Visibility visibility(const KvSpec& spec, const LayerSpec& layer,
                      std::optional<std::int64_t> attention_size) {
  Visibility v;
  v.window = layer.window;
  if (!layer.window && spec.rolling) {
    v.window = spec.rolling->window;
    v.sinks = spec.rolling->sinks;
  }
  if (attention_size) v.window = std::min(v.window.value_or(*attention_size), *attention_size);
  // The last sink stands right before the window.
  if (v.sinks > 0) v.sink_reader = *v.window + v.sinks - 1;
  return v;
}

std::optional<std::int64_t> kept_window(const KvSpec& spec, const LayerSpec& layer) {
  if (layer.window) return layer.window;
  return spec.rolling ? std::optional(spec.rolling->window) : std::nullopt;
}

Pos oldest_needed(const KvSpec& spec, const LayerSpec& layer, Pos end) {
  const auto window = kept_window(spec, layer);
  if (!window) return 0;
  return std::max<Pos>(0, end - *window + 1 - spec.slack);
}

std::int64_t count_rows(const KvSpec& spec, const Holdings& held) {
  Visibility kept = visibility(spec, LayerSpec{}, std::nullopt);
  for (std::size_t i = 0; i < held.forgotten.size(); ++i)
    if (!spec.layers[i].window) kept.forgotten = std::max(kept.forgotten, held.forgotten[i]);
  std::int64_t rows = 0;
  each_visible_run(held.segments, kept, held.position - 1,
                   [&](const VisibleRun& run) { rows += run.rows.last - run.rows.first; });
  return rows;
}

Holdings without(const KvSpec& spec, const Holdings& held, const PosRange& range, bool close_gap) {
  Holdings left = held;
  std::int64_t gap = 0;
  if (close_gap) {
    std::optional<Pos> from;  // of what is taken out, as it is seen
    for (const Segment& s : held.segments) {
      const Pos first = std::max(s.first, range.first), last = std::min(s.last, range.last);
      if (first >= last) continue;
      if (!from) from = first + s.shift;
      gap = last + s.shift - *from;
    }
    // Older text moves nearer. What had left a window must not come back with it, or a query would see more
    // or less of it depending on when its memory was given back.
    left.edited = held.position;
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      const auto window = kept_window(spec, spec.layers[i]);
      if (!window) continue;
      for (const Segment& s : held.segments) {
        const Pos gone = std::min(s.last, held.position - *window + 1 - s.shift);
        if (s.first < gone) left.forgotten[i] = std::max(left.forgotten[i], gone);
      }
    }
  }
  left.segments.clear();
  for (const Segment& s : held.segments) {
    if (s.first < range.first)
      left.segments.push_back({s.first, std::min(s.last, range.first), s.shift + gap});
    if (s.last > range.last) left.segments.push_back({std::max(s.first, range.last), s.last, s.shift});
  }
  return left;
}

bool before_edits(const Holdings& held, Pos length) {
  return length == 0 ||
         (!held.segments.empty() && held.segments.front().first == 0 && length <= held.segments.front().last);
}

Holdings back_to(const Holdings& held, Pos length) {
  if (length == held.position) return held;
  Holdings left{length, {}, held.forgotten, std::min(held.edited, length)};
  for (const Segment& s : held.segments)
    if (s.first < length) left.segments.push_back({s.first, std::min(s.last, length), s.shift});
  if (!before_edits(held, length)) return left;
  std::fill(left.forgotten.begin(), left.forgotten.end(), 0);
  for (Segment& s : left.segments) s.shift = 0;  // there is one at most
  return left;
}

std::vector<VisibleRun> visible_runs(const std::vector<Segment>& segments, const Visibility& visible,
                                     Pos reader) {
  std::vector<VisibleRun> runs;
  each_visible_run(segments, visible, reader, [&](const VisibleRun& run) { runs.push_back(run); });
  return runs;
}

}  // namespace kvtide
