// probe.i8mm.cpp: limits of Advanced SIMD with its matrix products of bytes.
#include <arm_neon.h>

#include "kernels/probe.h"

namespace kvtide {
namespace {

constexpr int kDotProducts = 32;
inline int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) { return vmmlaq_s32(sum, a, b); }

}  // namespace
}  // namespace kvtide

// Behind the product on which it is written.
#include "kernels/probe_neon.inl"

namespace kvtide {

extern constinit const ProbeRow kProbeI8mm{probe_row("i8mm")};

}  // namespace kvtide
