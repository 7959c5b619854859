#include "kernels/attend_tiles.h"

#include <algorithm>
#include <cstdint>

namespace kvtide {
namespace {

constexpr std::int64_t kGroupTiles = 16;  // tiles folded into one partial before it joins the result

// Rows that follow one another and are seen alike share groups wherever they lie in memory; others never do.
bool continues(const Span& before, const Span& span) {
  return span.first.has_value() == before.first.has_value() && before.sink == span.sink &&
         before.spread == span.spread && before.shift == span.shift &&
         before.reader_limit == span.reader_limit && before.mean_key == span.mean_key &&
         (span.mean_key == nullptr || before.rotation == span.rotation);
}

}  // namespace

TilePlan plan_tiles(std::span<const Span> spans, std::span<const ViewPoint> views, Pos lowest_visible) {
  TilePlan plan;
  const Span* previous = nullptr;
  std::int64_t open_group = -1;  // number of the group that the last tile belongs to
  std::int64_t loose_tiles = 0;  // tiles of rows without a position so far: they share groups, too
  for (const Span& span : spans) {
    const ViewPoint view{span.shift, span.reader_limit};
    if (previous == nullptr || !continues(*previous, span)) open_group = -1;
    previous = &span;
    TileRef ref{};
    ref.view = static_cast<std::size_t>(std::find(views.begin(), views.end(), view) - views.begin());
    ref.sink = span.sink;
    ref.last_reader = span.last_reader;
    const std::int64_t start = span.first.value_or(0);
    for (std::int64_t row = 0; row < span.rows;) {
      const std::int64_t tile = (start + row) / kTileRows;
      const int begin = static_cast<int>((start + row) % kTileRows);
      const int end = static_cast<int>(std::min<std::int64_t>(kTileRows, begin + span.rows - row));
      const std::int64_t next = row + end - begin;
      if (!span.first || span.sink || start + next + span.shift > lowest_visible) {
        ref.tile = tile_of(span, row, begin, end);
        if (span.first) ref.base = tile * kTileRows + span.shift;
        const std::int64_t group = (span.first ? tile : loose_tiles++) / kGroupTiles;
        if (group != open_group)
          plan.groups.push_back({plan.tiles.size(), plan.tiles.size(), span.spread, span.mean_key});
        open_group = group;
        plan.words = plan.words || span.key_type == DType::q8_0 || span.key_type == DType::q4_0;
        plan.tiles.push_back(ref);
        plan.groups.back().last = plan.tiles.size();
      }
      row = next;
    }
  }
  return plan;
}

}  // namespace kvtide
