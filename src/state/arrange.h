// arrange.h: which positions a layer holds and which of them a query sees. Pure functions of positions:
// attention, eviction, byte accounting and the tests all ask here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvtide/types.h"
#include "state/spec/spec.h"

namespace kvtide {

// Positions that were appended and not dropped, as they are seen: `shift` tokens nearer to the reader than
// written.
struct Segment {
  Pos first = 0, last = 0;
  std::int64_t shift = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// What is left of a text that was read: the same for all layers, but for `forgotten`.
struct Holdings {
  Pos position = 0;               // of the next token
  std::vector<Segment> segments;  // ascending
  // Per layer: positions below this one, sinks apart, had left the layer's window before a gap was closed.
  // Closing the gap moves them nearer to the reader, inside the window again; they must stay unseen, whether
  // their rows are still held or not.
  std::vector<Pos> forgotten;
  Pos edited = 0;  // position at which a gap was closed last
};

// What queries of one layer may see.
struct Visibility {
  std::optional<std::int64_t> window;  // newest positions, the query's own included; nullopt: all
  std::int64_t sinks = 0;              // positions [0, sinks) are always visible
  std::optional<Pos> sink_reader;      // queries beyond this position see the sinks as if they stood here
  Pos forgotten = 0;                   // positions below are never seen again, sinks apart
  friend bool operator==(const Visibility&, const Visibility&) = default;
};

// attention_size: the newest positions a query may see, whatever else holds; nullopt: all.
Visibility visibility(const KvSpec& spec, const LayerSpec& layer, std::optional<std::int64_t> attention_size);

// The oldest position that a layer must keep once `end` positions were appended, sinks apart: queries from
// `end` on, and after taking back up to `slack` positions, see nothing older. The attention size does not
// matter: it may grow again.
Pos oldest_needed(const KvSpec& spec, const LayerSpec& layer, Pos end);

// The window that decides what a layer keeps, whatever the attention size; nullopt: everything.
std::optional<std::int64_t> kept_window(const KvSpec& spec, const LayerSpec& layer);

// The positions of `held` that are sinks or among the newest, as a rolling state counts its rows; all of them
// otherwise.
std::int64_t count_rows(const KvSpec& spec, const Holdings& held);

// What is left without the positions of `range`. close_gap: what was held on both sides of it become
// neighbours, as they are seen; gaps that earlier drops left at the edges of the range stay as they are.
Holdings without(const KvSpec& spec, const Holdings& held, const PosRange& range, bool close_gap);

// What is left when only the first `length` positions remain. When `length` lies before everything that was
// ever dropped, the result is that of a text from which nothing was dropped.
Holdings back_to(const Holdings& held, Pos length);
bool before_edits(const Holdings& held, Pos length);

// The segments cut to what queries at positions >= reader can see, sinks first and apart from the rest.
struct VisibleRun {
  Segment rows;
  bool sink = false;
  friend bool operator==(const VisibleRun&, const VisibleRun&) = default;
};
std::vector<VisibleRun> visible_runs(const std::vector<Segment>& segments, const Visibility& visible,
                                     Pos reader);

}  // namespace kvtide
