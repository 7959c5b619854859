// tiles.amx.h: how tiles are told their sizes, for what uses them.
//
// g++ 12 knows of 8 of the 64 bytes that _tile_loadconfig reads: a configuration has to be a constant.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace kvtide {
namespace {

// What `ldtilecfg` reads: for each tile the bytes of a row, and the rows. Tiles that are left out have none.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16];
  std::uint8_t rows[16];
};

// Tiles are read from memory, which g++ 12 does not know either: what was written before is there behind this.
inline void written() { asm volatile("" ::: "memory"); }

}  // namespace
}  // namespace kvtide
