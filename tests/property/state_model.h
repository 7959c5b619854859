// state_model.h: the contract of a KV state, written a second time and as simply as can be: a list of the
// places of a text, each with what was written there. For comparing with KvState; shares no code with it.
//
// A place keeps its position for good. What is taken out leaves a hole, or, where the gap is closed, no place
// at all: so the distance at which a place is seen is the number of places behind it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/transition.h"
#include "state/spec/spec.h"

namespace kvtide::testing {

// What a query may be given: a row, and how it is seen.
struct SeenRow {
  Pos position = 0;
  std::int64_t text = 0;  // what was written there
  std::int64_t shift = 0;
  bool sink = false;
  friend bool operator==(const SeenRow&, const SeenRow&) = default;
};

enum class Verdict { accepts, refuses, either };

class StateModel {
 public:
  explicit StateModel(const KvSpec& s) : spec(s), forgotten(s.layers.size(), 0) {}

  struct Place {
    Pos position;
    std::int64_t text;
    bool held = true;
  };

  KvSpec spec;
  std::vector<Place> places;
  std::optional<std::int64_t> attention;
  Pos position = 0;
  Pos farthest = 0;            // since when windows may have let go of rows: the highest position so far
  Pos edited = 0;              // position at the last closed gap
  std::vector<Pos> forgotten;  // per layer: positions that had left its window when a gap was closed

  // The window of a layer; attention sizes apart.
  std::optional<std::int64_t> window(std::size_t layer) const {
    if (spec.layers[layer].window) return spec.layers[layer].window;
    if (spec.rolling) return spec.rolling->window;
    return std::nullopt;
  }
  std::int64_t sinks(std::size_t layer) const {
    return spec.rolling && !spec.layers[layer].window ? spec.rolling->sinks : 0;
  }
  std::optional<std::int64_t> window_now(std::size_t layer) const {
    const auto own = window(layer);
    if (!attention) return own;
    return own ? std::min(*own, *attention) : *attention;
  }

  // Where place i is seen by a reader at `position`.
  Pos seen(std::size_t i) const { return position - static_cast<Pos>(places.size() - i); }

  // The rows that queries from `position` on are given, sinks first.
  std::vector<SeenRow> visible(std::size_t layer, std::optional<std::int64_t> newest) const {
    std::vector<SeenRow> rows;
    for (const bool sink : {true, false})
      for (std::size_t i = 0; i < places.size(); ++i) {
        const Place& place = places[i];
        if (!place.held || (place.position < sinks(layer)) != sink) continue;
        if (!sink && newest && seen(i) <= position - *newest) continue;
        if (!sink && place.position < forgotten[layer]) continue;
        rows.push_back({place.position, place.text, seen(i) - place.position, sink});
      }
    return rows;
  }

  std::int64_t rows() const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!places[i].held) continue;
      const bool kept = !spec.rolling || places[i].position < spec.rolling->sinks ||
                        (seen(i) >= position - spec.rolling->window && places[i].position >= forgotten[0]);
      if (kept) ++count;
    }
    return count;
  }
  bool endless() const { return spec.rolling && spec.rolling->sinks + spec.rolling->window <= spec.capacity; }
  bool has_room(std::int64_t tokens) const { return endless() || rows() + tokens <= spec.capacity; }

  void append(std::int64_t tokens, std::int64_t first_text) {
    for (std::int64_t t = 0; t < tokens; ++t) places.push_back({position + t, first_text + t});
    position += tokens;
    farthest = std::max(farthest, position);
  }

  void clear() {
    places.clear();
    position = farthest = edited = 0;
    std::fill(forgotten.begin(), forgotten.end(), 0);
  }

  // Whether place i is still there as it was written, with everything before it.
  Pos untouched() const {
    Pos end = 0;
    while (static_cast<std::size_t>(end) < places.size() && places[static_cast<std::size_t>(end)].held &&
           places[static_cast<std::size_t>(end)].position == end)
      ++end;
    return end;
  }
  // The first position of the run of text that is the newest one.
  Pos newest_run() const {
    Pos first = position;
    for (auto place = places.rbegin(); place != places.rend() && place->held && place->position == first - 1;
         ++place)
      --first;
    return first;
  }
  bool windowed() const {
    for (std::size_t i = 0; i < spec.layers.size(); ++i)
      if (window(i)) return true;
    return false;
  }

  Verdict verdict(const Transition& transition) const;
  void apply(const Transition& transition);
};

}  // namespace kvtide::testing
