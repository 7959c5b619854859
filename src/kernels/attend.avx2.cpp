// attend.avx2.cpp: attention over one tile of rows for AVX2, FMA, F16C. The arithmetic is in attend_row.inl.
#include "kernels/attend_kernel.h"
#include "kernels/half_words.avx2.h"
// After the lanes, on which it is written.
#include "kernels/attend_row.inl"

namespace kvtide {

extern const AttendRow kAttendAvx2 = attend_row("avx2");

}  // namespace kvtide
