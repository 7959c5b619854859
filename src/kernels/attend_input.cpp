#include "kernels/attend_input.h"

namespace kvtide {

AttendTile tile_of(const Span& span, std::int64_t row, int begin, int end) {
  return {span.keys + row * span.key_stride,
          span.values + row * span.value_stride,
          span.key_type,
          span.value_type,
          span.key_stride,
          span.value_stride,
          begin,
          end,
          span.log_mass != nullptr ? span.log_mass + row : nullptr,
          span.rotation,
          static_cast<int>(span.rotation_pairs),
          span.mass};
}

std::vector<ViewPoint> view_points(std::span<const std::vector<Span>> spans) {
  std::vector<ViewPoint> points{{}};
  for (const auto& list : spans)
    for (const Span& span : list) {
      const ViewPoint point{span.shift, span.reader_limit};
      if (std::find(points.begin(), points.end(), point) == points.end()) points.push_back(point);
    }
  return points;
}

}  // namespace kvtide
