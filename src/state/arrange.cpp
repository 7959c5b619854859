#include "state/arrange.h"

#include <algorithm>

namespace kvtide {

Visibility visibility(const StateSpec& spec, const LayerSpec& layer,
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

Pos oldest_needed(const StateSpec& spec, const LayerSpec& layer, Pos end) {
  const auto window = layer.window   ? layer.window
                      : spec.rolling ? std::optional(spec.rolling->window)
                                     : std::nullopt;
  if (!window) return 0;
  return std::max<Pos>(0, end - *window + 1 - spec.slack);
}

std::vector<VisibleRun> visible_runs(const std::vector<Segment>& segments, const Visibility& visible,
                                     Pos reader) {
  std::vector<VisibleRun> runs;
  const Pos oldest = visible.window ? std::max<Pos>(0, reader - *visible.window + 1) : 0;
  for (const bool sink : {true, false})
    for (const Segment& segment : segments) {
      Segment cut = segment;
      if (sink) {
        cut.last = std::min(cut.last, visible.sinks);
      } else {
        cut.first = std::max({cut.first, visible.sinks, oldest - segment.shift});
      }
      if (cut.first < cut.last) runs.push_back({cut, sink});
    }
  return runs;
}

}  // namespace kvtide
