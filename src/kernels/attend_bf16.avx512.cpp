// attend_bf16.avx512.cpp: attention over one tile of rows for AVX-512 with its bf16 instructions. The arithmetic is in
// attend_row.inl.
#include "kernels/attend_kernel.h"
#include "kernels/half_words.avx512.h"
// After the lanes, on which it is written.
#include "kernels/attend_row.inl"

namespace kvtide {

extern const AttendRow kAttendAvx512Bf16 = attend_row("avx512_bf16");

}  // namespace kvtide
