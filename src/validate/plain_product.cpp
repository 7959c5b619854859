// plain_product.cpp: the matrix products of the plain forward pass, which are nearly all of its work: a file of
// their own, for the compiler's options. Each sum runs over the columns in order, in double.
#include <algorithm>

#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

constexpr std::int64_t kTile = 8;  // tokens that share one pass over a weight row

}  // namespace

PlainDecoder::Rows PlainDecoder::product(const Rows& x, const PlainMatrix& m) {
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / m.columns;
  const std::int64_t tiles = (tokens + kTile - 1) / kTile;
  // [tile][column][token of the tile], so that the sums of a tile run side by side.
  std::vector<double> columns(static_cast<std::size_t>(tiles * m.columns * kTile));
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t k = 0; k < m.columns; ++k)
      columns[static_cast<std::size_t>((t / kTile * m.columns + k) * kTile + t % kTile)] =
          static_cast<double>(x[static_cast<std::size_t>(t * m.columns + k)]);
  Rows y(static_cast<std::size_t>(tokens * m.rows));
  constexpr std::int64_t kRun = 16;  // weight rows of one piece of work
  pool_.run((m.rows + kRun - 1) / kRun, [&](std::int64_t run) {
    std::vector<float> weights(static_cast<std::size_t>(m.columns));
    for (std::int64_t r = run * kRun; r < std::min(m.rows, (run + 1) * kRun); ++r) {
      m.row(r, weights.data());
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        double sums[kTile] = {};
        const double* column = columns.data() + tile * m.columns * kTile;
        for (const float weight : weights) {
          const auto w = static_cast<double>(weight);
          for (std::int64_t i = 0; i < kTile; ++i) sums[i] += w * column[i];
          column += kTile;
        }
        for (std::int64_t i = 0; i < std::min(kTile, tokens - tile * kTile); ++i)
          y[static_cast<std::size_t>((tile * kTile + i) * m.rows + r)] = static_cast<float>(sums[i]);
      }
    }
  });
  return y;
}

}  // namespace kvtide
