// elementwise.neon.cpp: norms, rotations, activations and conversions for Advanced SIMD. The arithmetic is
// in elementwise.inl.
#include "kernels/elementwise.h"
#include "kernels/lanes.neon.h"
// After the lanes, on which it is written.
#include "kernels/elementwise.inl"

namespace kvtide {

extern const ElementwiseRow kElementwiseNeon{.isa = "neon",
                                             .rms_norm = &rms_norm,
                                             .layer_norm = &layer_norm,
                                             .rope = &rope,
                                             .silu_mul = &silu_mul,
                                             .gelu_mul = &gelu_mul,
                                             .sigmoid_mul = &sigmoid_mul,
                                             .convolve_silu = &convolve_silu,
                                             .soft_cap = &soft_cap,
                                             .gelu = &gelu,
                                             .delta_rule = &delta_rule,
                                             .selective_scan = &selective_scan,
                                             .add = &add,
                                             .scale = &scale,
                                             .to_f16 = &to_f16,
                                             .quantize = &quantize};

}  // namespace kvtide
