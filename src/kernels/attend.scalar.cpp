// attend.scalar.cpp: attention over one tile of rows for plain C++, the specification. The arithmetic is in attend_row.inl.
#include "kernels/attend_kernel.h"
#include "kernels/lanes.scalar.h"
// After the lanes, on which it is written.
#include "kernels/attend_row.inl"

namespace kvtide {

extern const AttendRow kAttendScalar = attend_row("scalar");

}  // namespace kvtide
