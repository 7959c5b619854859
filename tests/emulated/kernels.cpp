// kernels.cpp: every table of x86, in place of src/kernels/kernels.cpp. Probes are left out: they only measure.
#include "kernels/kernels.h"

#include "kvtide/error.h"

namespace kvtide {
namespace {

const Kernels kScalar{"scalar", kMatmulScalar, kAttendScalar, kElementwiseScalar, kDenseScalar, kProbeScalar};
const Kernels kAvx2{"avx2", kMatmulAvx2, kAttendAvx2, kElementwiseAvx2, kDenseAvx2, kProbeAvx2};
const Kernels kAvxVnni{"avx_vnni", kMatmulAvxVnni, kAttendAvx2, kElementwiseAvx2, kDenseAvx2, kProbeAvx2};
const Kernels kAvx512{"avx512", kMatmulAvx512, kAttendAvx512, kElementwiseAvx512, kDenseAvx512, kProbeAvx2};
const Kernels kAvx512Bf16{"avx512_bf16",      kMatmulAvx512, kAttendAvx512Bf16,
                          kElementwiseAvx512, kDenseAvx512,  kProbeAvx2};
const Kernels kAmx{"amx", kMatmulAmx, kAttendAmx, kElementwiseAvx512, kDenseAvx512, kProbeAvx2};

}  // namespace

std::vector<const Kernels*> available_kernels() {
  return {&kAmx, &kAvx512Bf16, &kAvx512, &kAvxVnni, &kAvx2, &kScalar};
}

const Kernels& best_kernels() { return *available_kernels().front(); }

const Kernels& kernels_by_name(std::string_view isa) {
  for (const Kernels* table : available_kernels())
    if (isa == table->isa) return *table;
  throw Error(ErrorCode::unsupported, "no kernels of that name");
}

}  // namespace kvtide
