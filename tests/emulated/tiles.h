// tiles.h: the instructions of AMX. Included by instructions.h.
#pragma once

namespace {
namespace emulated {

struct Tile {
  int bytes = 0, rows = 0;
  std::int8_t at[16][64] = {};
};
inline thread_local Tile tiles[8];
inline void tile_loadconfig(const void* config) {
  const auto* from = static_cast<const unsigned char*>(config);
  for (int i = 0; i < 8; ++i) {
    std::uint16_t bytes = 0;
    std::memcpy(&bytes, from + 16 + 2 * i, 2);
    tiles[i] = Tile{.bytes = bytes, .rows = from[48 + i]};
  }
}
inline void tile_release() {
  for (Tile& tile : tiles) tile = Tile{};
}
inline void tile_zero(int to) { std::memset(tiles[to].at, 0, sizeof tiles[to].at); }
inline void tile_loadd(int to, const void* from, std::int64_t stride) {
  Tile& tile = tiles[to];
  tile_zero(to);
  for (int row = 0; row < tile.rows; ++row)
    std::memcpy(tile.at[row], static_cast<const char*>(from) + row * stride,
                static_cast<std::size_t>(tile.bytes));
}
inline void tile_stored(int from, void* to, std::int64_t stride) {
  const Tile& tile = tiles[from];
  for (int row = 0; row < tile.rows; ++row)
    std::memcpy(static_cast<char*>(to) + row * stride, tile.at[row], static_cast<std::size_t>(tile.bytes));
}
inline void tile_dpbssd(int to, int a, int b) {
  Tile& sum = tiles[to];
  for (int m = 0; m < sum.rows; ++m)
    for (int n = 0; n < sum.bytes / 4; ++n) {
      std::int32_t total = 0;
      std::memcpy(&total, sum.at[m] + 4 * n, 4);
      for (int k = 0; k < tiles[a].bytes; ++k) total += tiles[a].at[m][k] * tiles[b].at[k / 4][4 * n + k % 4];
      std::memcpy(sum.at[m] + 4 * n, &total, 4);
    }
}

}  // namespace emulated
}  // namespace

#undef _tile_dpbssd
#define _tile_dpbssd emulated::tile_dpbssd
#undef _tile_loadconfig
#define _tile_loadconfig emulated::tile_loadconfig
#undef _tile_loadd
#define _tile_loadd emulated::tile_loadd
#undef _tile_release
#define _tile_release emulated::tile_release
#undef _tile_stored
#define _tile_stored emulated::tile_stored
#undef _tile_zero
#define _tile_zero emulated::tile_zero
