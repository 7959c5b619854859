// arrange.h: which positions a layer holds and which of them a query sees. Pure functions of positions:
// attention, eviction, byte accounting and the tests all ask here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvtide/types.h"
#include "state/spec.h"

namespace kvtide {

// Positions that were appended and not dropped, as they are seen: `shift` tokens nearer to the reader than
// written.
struct Segment {
  Pos first = 0, last = 0;
  std::int64_t shift = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// What queries of one layer may see.
struct Visibility {
  std::optional<std::int64_t> window;  // newest positions, the query's own included; nullopt: all
  std::int64_t sinks = 0;              // positions [0, sinks) are always visible
  std::optional<Pos> sink_reader;      // queries beyond this position see the sinks as if they stood here
  friend bool operator==(const Visibility&, const Visibility&) = default;
};

// attention_size: the newest positions a query may see, whatever else holds; nullopt: all.
Visibility visibility(const StateSpec& spec, const LayerSpec& layer,
                      std::optional<std::int64_t> attention_size);

// The oldest position that a layer must keep once `end` positions were appended, sinks apart: queries from
// `end` on, and after taking back up to `slack` positions, see nothing older. The attention size does not
// matter: it may grow again.
Pos oldest_needed(const StateSpec& spec, const LayerSpec& layer, Pos end);

// The segments cut to what queries at positions >= reader can see, sinks first and apart from the rest.
struct VisibleRun {
  Segment rows;
  bool sink = false;
  friend bool operator==(const VisibleRun&, const VisibleRun&) = default;
};
std::vector<VisibleRun> visible_runs(const std::vector<Segment>& segments, const Visibility& visible,
                                     Pos reader);

}  // namespace kvtide
