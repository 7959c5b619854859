// attend.neon.cpp: attention over one tile of rows for Advanced SIMD. The arithmetic is in attend_row.inl.
#include "kernels/attend_kernel.h"
#include "kernels/lanes.neon.h"
// After the lanes, on which it is written.
#include "kernels/attend_row.inl"

namespace kvtide {

extern const AttendRow kAttendNeon = attend_row("neon");

}  // namespace kvtide
