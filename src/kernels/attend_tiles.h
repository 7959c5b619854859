// attend_tiles.h: the spans of one KV head cut into tiles and groups: the fixed tree by which attention folds.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attend_input.h"

namespace kvtide {

// A tile of one span: where its rows are and which positions its places stand for.
struct TileRef {
  AttendTile tile;
  std::optional<Pos> base;  // position of place 0, as it is seen
  std::size_t view = 0;     // index of its view point
  bool sink = false;
  std::optional<Pos> last_reader;
};
// Tiles [first, last) of a list, folded together: all of them spread, or none. With a mean key all of them have that one
// and one turn, so that it adds the same to all scores of a query.
struct TileGroup {
  std::size_t first, last;
  bool spread;
  const float* mean_key = nullptr;
};
struct TilePlan {  // of one KV head
  std::vector<TileRef> tiles;
  std::vector<TileGroup> groups;
  bool words = false;  // some keys are q8_0
};

// Tiles whose rows all lie below `lowest_visible` are left out. views: those of the input.
TilePlan plan_tiles(std::span<const Span> spans, std::span<const ViewPoint> views, Pos lowest_visible);

}  // namespace kvtide
