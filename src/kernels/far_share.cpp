#include "kernels/far_share.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace kvtide {
namespace {

// Running partials of the heads of one token, with their memory.
struct Mass {
  std::vector<float> max, sum, out;
  Mass(int heads, int padded_dim)
      : max(static_cast<std::size_t>(heads), -std::numeric_limits<float>::infinity()),
        sum(static_cast<std::size_t>(heads), 0.0f),
        out(static_cast<std::size_t>(heads * padded_dim), 0.0f) {}
  AttendPartials view() { return {max.data(), sum.data(), out.data()}; }
};

}  // namespace

std::vector<float> far_shares(const AttendRow& kernels, const AttendInput& input, std::int64_t token,
                              int kv_head, std::int64_t near) {
  const AttendShape& shape = input.shape;
  const int group = shape.heads / shape.kv_heads, padded_dim = (shape.head_dim + 15) / 16 * 16;
  const Pos reader = shape.first + token;
  const Pos oldest = shape.window ? std::max<Pos>(0, reader - *shape.window + 1) : 0;
  Mass nearby(group, padded_dim), far(group, padded_dim);
  std::vector<float> query(static_cast<std::size_t>(group * padded_dim));
  std::vector<int> lo(static_cast<std::size_t>(group)), hi(lo.size());

  for (const Span& span : input.spans[static_cast<std::size_t>(kv_head)]) {
    const auto view =
        std::find(input.views.begin(), input.views.end(), ViewPoint{span.shift, span.reader_limit});
    const float* heads = input.q[static_cast<std::size_t>(view - input.views.begin())] +
                         (token * shape.heads + kv_head * group) * shape.head_dim;
    for (int i = 0; i < group; ++i)
      std::memcpy(query.data() + i * padded_dim, heads + i * shape.head_dim,
                  static_cast<std::size_t>(shape.head_dim) * sizeof(float));
    // Places [from, to) of the tile that starts at row `row`, folded into one of the two.
    const auto fold = [&](const AttendTile& tile, Pos from, Pos to, Mass& into) {
      const int first = static_cast<int>(std::clamp<Pos>(from, tile.begin, tile.end));
      const int last = static_cast<int>(std::clamp<Pos>(to, tile.begin, tile.end));
      if (first >= last) return;
      std::fill(lo.begin(), lo.end(), first);
      std::fill(hi.begin(), hi.end(), last);
      kernels.fold_tile(
          tile, {group, shape.head_dim, padded_dim, shape.scale, query.data(), nullptr, lo.data(), hi.data()},
          into.view());
    };
    const std::int64_t start = span.first.value_or(0);
    for (std::int64_t row = 0; row < span.rows;) {
      const std::int64_t number = (start + row) / kTileRows;
      const int begin = static_cast<int>((start + row) % kTileRows);
      const int end = static_cast<int>(std::min<std::int64_t>(kTileRows, begin + span.rows - row));
      const AttendTile tile = tile_of(span, row, begin, end);
      const Pos base = number * kTileRows + span.shift;  // position of place 0, as it is seen
      if (!span.first) {
        fold(tile, begin, end, nearby);
      } else if (span.sink) {
        fold(tile, begin, reader + 1 - base, nearby);
      } else {
        fold(tile, oldest - base, reader + 1 - near - base, far);
        fold(tile, std::max(oldest, reader + 1 - near) - base, reader + 1 - base, nearby);
      }
      row += end - begin;
    }
  }

  // What is merged does not have to be values: with the far sums in their place, merging weighs them as the
  // softmax does, with its own exponential function.
  std::fill(nearby.out.begin(), nearby.out.end(), 0.0f);
  std::fill(far.out.begin(), far.out.end(), 0.0f);
  for (int i = 0; i < group; ++i)
    far.out[static_cast<std::size_t>(i * padded_dim)] = far.sum[static_cast<std::size_t>(i)];
  kernels.merge(group, padded_dim, far.view(), nearby.view());
  std::vector<float> shares;
  for (int i = 0; i < group; ++i)
    shares.push_back(nearby.out[static_cast<std::size_t>(i * padded_dim)] /
                     nearby.sum[static_cast<std::size_t>(i)]);
  return shares;
}

}  // namespace kvtide
