// attend.amx.cpp: attention over one tile of rows for processors with tiles. It uses none of them: those of bf16
// sum in another order. The arithmetic is in attend_row.inl.
#include "kernels/attend_kernel.h"
#include "kernels/half_words.avx512.h"
// After the lanes, on which it is written.
#include "kernels/attend_row.inl"

namespace kvtide {

extern const AttendRow kAttendAmx = attend_row("amx");

}  // namespace kvtide
