// attend.amx.cpp: attention over one tile of rows for processors with tiles. It uses none of them: those of bf16
// sum in another order. The arithmetic is in attend.inl, attend_ints.inl and attend_spread.inl.
#include "kernels/attend_kernel.h"
#include "kernels/lanes.avx512.h"
// After the lanes, on which it is written.
#include "kernels/attend.inl"
#include "kernels/attend_ints.inl"
#include "kernels/attend_spread.inl"

namespace kvtide {

extern const AttendRow kAttendAmx{.isa = "amx",
                                  .fold_tile = &fold_tile,
                                  .fold_tile_bf16 = &fold_tile_rounded,
                                  .pack_queries = &pack_queries,
                                  .quantize_queries = &quantize_queries,
                                  .merge = &merge,
                                  .spread = &spread_rows,
                                  .probe_pairs = &probe_pairs,
                                  .probe_flop = kProbeFlop};

}  // namespace kvtide
