// kernels.h: the kernel table: one row of functions per family, chosen once from what the processor has.
//
// Passed by reference to whoever computes; never a global. All tables give the same bits (tests/kernels), so
// the choice changes speed only.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/attend_kernel.h"
#include "kernels/dense.h"
#include "kernels/elementwise.h"
#include "kernels/matmul_kernel.h"
#include "kernels/probe.h"

namespace kvtide {

struct Kernels {
  // "scalar"; x86: "avx2", "avx_vnni", "avx512", "avx512_bf16", "amx"; Arm: "neon", "dotprod", "i8mm", "i8mm_bf16"
  const char* isa;
  const MatmulRow& matmul;
  const AttendRow& attend;
  const ElementwiseRow& elementwise;
  const DenseRow& dense;
  const ProbeRow& probe;
};

// The best table that this processor can run. Asks the processor (Arm: the kernel) each time, which takes a virtual
// machine tens of microseconds: once per run, not per token. With AMX it also asks Linux for tiles, which this process
// may use from then on.
const Kernels& best_kernels();

// Every table that this processor can run, best first.
std::vector<const Kernels*> available_kernels();

// The table with that name. Throws Error(unsupported) when the processor lacks it, listing what there is.
const Kernels& kernels_by_name(std::string_view isa);

}  // namespace kvtide
