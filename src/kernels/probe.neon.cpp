// probe.neon.cpp: limits of Advanced SIMD. Products of bytes take an instruction, their sums another, as in matmul.neon.cpp.
#include <arm_neon.h>

#include "kernels/probe.h"

namespace kvtide {
namespace {

constexpr int kDotProducts = 8;
inline int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) {
  return vpadalq_s16(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
}

}  // namespace
}  // namespace kvtide

// Behind the product on which it is written.
#include "kernels/probe_neon.inl"

namespace kvtide {

extern constinit const ProbeRow kProbeNeon{probe_row("neon")};

}  // namespace kvtide
