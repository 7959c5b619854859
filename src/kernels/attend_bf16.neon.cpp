// attend_bf16.neon.cpp: attention over one tile of rows for Advanced SIMD with its bf16 instructions. The arithmetic is
// in attend_row.inl.
#include "kernels/attend_kernel.h"
#include "kernels/lanes.neon.h"
// After the lanes, on which it is written.
#include "kernels/attend_row.inl"

namespace kvtide {

extern const AttendRow kAttendNeonBf16 = attend_row("neon_bf16");

}  // namespace kvtide
