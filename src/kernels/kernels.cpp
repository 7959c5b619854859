#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

const Kernels kScalar{"scalar", kMatmulScalar, kAttendScalar, kElementwiseScalar, kDenseScalar, kProbeScalar};
#if defined(__x86_64__)
const Kernels kAvx2{"avx2", kMatmulAvx2, kAttendAvx2, kElementwiseAvx2, kDenseAvx2, kProbeAvx2};
const Kernels kAvx512{"avx512", kMatmulAvx512, kAttendAvx512, kElementwiseAvx512, kDenseAvx512, kProbeAvx512};
const Kernels kAvx512Bf16{"avx512_bf16",      kMatmulAvx512, kAttendAvx512Bf16,
                          kElementwiseAvx512, kDenseAvx512,  kProbeAvx512};

// clang 14 does not know "f16c" by name: bit 29 of ECX of leaf 1.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && ((c >> 29) & 1u) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
         has_f16c();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> tables;
#if defined(__x86_64__)
  if (has_avx512() && __builtin_cpu_supports("avx512bf16")) tables.push_back(&kAvx512Bf16);
  if (has_avx512()) tables.push_back(&kAvx512);
  if (has_avx2()) tables.push_back(&kAvx2);
#endif
  tables.push_back(&kScalar);
  return tables;
}

const Kernels& best_kernels() { return *available_kernels().front(); }

const Kernels& kernels_by_name(std::string_view isa) {
  std::string known;
  for (const Kernels* table : available_kernels()) {
    if (isa == table->isa) return *table;
    known += cat(known.empty() ? "" : ", ", table->isa);
  }
  throw Error(ErrorCode::unsupported,
              cat("no kernels named ", quoted(isa), " for this processor; it can run: ", known));
}

}  // namespace kvtide
