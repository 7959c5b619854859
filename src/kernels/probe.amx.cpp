// probe.amx.cpp: the limit of AMX's products of bytes; the rest is that of AVX-512.
#include "kernels/probe_lanes.avx512.h"
#include "kernels/tiles.amx.h"

namespace kvtide {
namespace {

// Sums in turns: a product is done after 52 cycles, and the next one may begin after 16.
constexpr int kTiles = 4;
constexpr TileConfig kConfig{.bytes = {64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16}};

std::int32_t dot_rounds(std::int64_t rounds) noexcept {
  alignas(64) std::int8_t weights[1024], activations[1024];
  alignas(64) std::int32_t sums[256];
  for (int i = 0; i < 1024; ++i) {
    weights[i] = 3;
    activations[i] = -5;
  }
  _tile_loadconfig(&kConfig);
  written();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, activations, 64);
  _tile_loadd(5, weights, 64);
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  _tile_stored(0, sums, 64);
  _tile_release();
  return sums[0];
}

}  // namespace

extern const ProbeRow kProbeAmx{.isa = "amx",
                                .read = &read,
                                .fma = &fma_rounds,
                                .fma_flop = kChains * 16 * 2,
                                .dot = &dot_rounds,
                                .dot_op = kTiles * 16 * 16 * 64 * 2};

}  // namespace kvtide
