// probe.h: loops that do nothing but reach a limit of the processor, so that a bench can say what share of it
// the engine reaches.
//
// Each function keeps one execution unit busy with independent operations of the kind that the family's real
// kernels use. Results are returned only so that no compiler can leave the work out.
// Thread rules: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvtide {

struct ProbeRow {
  const char* isa;
  // Reads `bytes` (a multiple of 256, 64-byte aligned) once, front to back.
  std::uint64_t (*read)(const std::byte* data, std::size_t bytes) noexcept;
  // `rounds` rounds of fma_flop floating-point operations (a fused multiply-add counts as two).
  float (*fma)(std::int64_t rounds) noexcept;
  std::int64_t fma_flop;
  // `rounds` rounds of dot_op integer operations: 8-bit products summed in 32 bits (a product and its sum
  // count as two).
  std::int32_t (*dot)(std::int64_t rounds) noexcept;
  std::int64_t dot_op;
};

extern const ProbeRow kProbeScalar;
extern const ProbeRow kProbeAvx2;
extern const ProbeRow kProbeAvxVnni;
extern const ProbeRow kProbeAvx512;
extern const ProbeRow kProbeAmx;
extern const ProbeRow kProbeNeon;
extern const ProbeRow kProbeDotprod;
extern const ProbeRow kProbeI8mm;

}  // namespace kvtide
