// attend_row.inl: the row of functions of one instruction set, on its lanes. Included once by each attend.<isa>.cpp after
// the lanes.
#include "kernels/attend.inl"
#include "kernels/attend_packed.inl"
#include "kernels/attend_spread.inl"

namespace kvtide {
namespace {

constexpr AttendRow attend_row(const char* isa) {
  return {.isa = isa,
          .fold_tile = &fold_tile,
          .fold_tile_bf16 = &fold_tile_rounded,
          .pack_queries = &pack_queries,
          .quantize_queries = &quantize_queries,
          .merge = &merge,
          .spread = &spread_rows,
          .probe_pairs = &probe_pairs,
          .probe_flop = kProbeFlop};
}

}  // namespace
}  // namespace kvtide
