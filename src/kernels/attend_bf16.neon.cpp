// attend_bf16.neon.cpp: attention over one tile of rows for Advanced SIMD with its bf16 instructions. The
// arithmetic is in attend.inl, attend_ints.inl and attend_spread.inl.
#include "kernels/attend_kernel.h"
#include "kernels/lanes.neon.h"
// After the lanes, on which it is written.
#include "kernels/attend.inl"
#include "kernels/attend_ints.inl"
#include "kernels/attend_spread.inl"

namespace kvtide {

extern const AttendRow kAttendNeonBf16{.isa = "neon_bf16",
                                       .fold_tile = &fold_tile,
                                       .fold_tile_bf16 = &fold_tile_rounded,
                                       .pack_queries = &pack_queries,
                                       .quantize_queries = &quantize_queries,
                                       .merge = &merge,
                                       .spread = &spread_rows,
                                       .probe_pairs = &probe_pairs,
                                       .probe_flop = kProbeFlop};

}  // namespace kvtide
