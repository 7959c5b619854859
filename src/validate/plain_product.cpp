// plain_product.cpp: the matrix products of the plain forward pass, which are nearly all of its work: a file of
// their own, for the compiler's options. Each sum runs over the columns in order, in double.
#include <algorithm>

#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

constexpr std::int64_t kRun = 16;  // weight rows of one piece of work

// kTile tokens share one pass over kRows weight rows: enough sums to hide how long an addition takes.
template <std::int64_t kRows, std::int64_t kTile>
struct Tiles {
  // [tile][column][token of the tile], so that the sums of a tile run side by side.
  Tiles(const std::vector<float>& x, std::int64_t token_count, std::int64_t column_count)
      : tokens(token_count),
        columns(column_count),
        tiles((tokens + kTile - 1) / kTile),
        inputs(static_cast<std::size_t>(tiles * columns * kTile)) {
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t k = 0; k < columns; ++k)
        inputs[static_cast<std::size_t>((t / kTile * columns + k) * kTile + t % kTile)] =
            static_cast<double>(x[static_cast<std::size_t>(t * columns + k)]);
  }

  // sums[row][token] of kRows weight rows, [row][column], and a tile.
  void add(const float* weights, std::int64_t tile, double* sums) const {
    double held[kRows * kTile] = {};
    const double* input = inputs.data() + tile * columns * kTile;
    for (std::int64_t k = 0; k < columns; ++k, input += kTile)
      for (std::int64_t r = 0; r < kRows; ++r) {
        const auto w = static_cast<double>(weights[r * columns + k]);
        for (std::int64_t i = 0; i < kTile; ++i) held[r * kTile + i] += w * input[i];
      }
    std::copy(held, held + kRows * kTile, sums);
  }

  // Weight rows [first, last) of y, [tokens][rows].
  void run(const PlainMatrix& m, std::int64_t first, std::int64_t last, float* y) const {
    std::vector<float> weights(static_cast<std::size_t>(kRows * columns));
    double sums[kRows * kTile];
    for (std::int64_t r = first; r < last; r += kRows) {
      const std::int64_t rows = std::min(kRows, last - r);
      for (std::int64_t i = 0; i < rows; ++i) m.row(r + i, weights.data() + i * columns);
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        add(weights.data(), tile, sums);
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t i = 0; i < std::min(kTile, tokens - tile * kTile); ++i)
            y[(tile * kTile + i) * m.rows + r + row] = static_cast<float>(sums[row * kTile + i]);
      }
    }
  }

  std::int64_t tokens, columns, tiles;
  std::vector<double> inputs;
};

}  // namespace

// The sums of a token are the same whatever the tiles.
PlainDecoder::Rows PlainDecoder::product(const Rows& x, const PlainMatrix& m) {
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / m.columns;
  Rows y(static_cast<std::size_t>(tokens * m.rows));
  const auto by = [&](const auto& tiles) {
    pool_.run((m.rows + kRun - 1) / kRun, [&](std::int64_t run) {
      tiles.run(m, run * kRun, std::min(m.rows, (run + 1) * kRun), y.data());
    });
  };
  if (tokens <= 4)
    by(Tiles<4, 4>(x, tokens, m.columns));
  else
    by(Tiles<2, 8>(x, tokens, m.columns));
  return y;
}

}  // namespace kvtide
