#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

const Kernels kScalar{"scalar", kMatmulScalar, kAttendScalar, kElementwiseScalar, kDenseScalar, kProbeScalar};
#if defined(__x86_64__)
const Kernels kAvx2{"avx2", kMatmulAvx2, kAttendAvx2, kElementwiseAvx2, kDenseAvx2, kProbeAvx2};
const Kernels kAvxVnni{"avx_vnni", kMatmulAvxVnni, kAttendAvx2, kElementwiseAvx2, kDenseAvx2, kProbeAvxVnni};
const Kernels kAvx512{"avx512", kMatmulAvx512, kAttendAvx512, kElementwiseAvx512, kDenseAvx512, kProbeAvx512};
const Kernels kAvx512Bf16{"avx512_bf16",      kMatmulAvx512, kAttendAvx512Bf16,
                          kElementwiseAvx512, kDenseAvx512,  kProbeAvx512};
const Kernels kAmx{"amx", kMatmulAmx, kAttendAmx, kElementwiseAvx512, kDenseAvx512, kProbeAmx};

// clang 14 does not know "f16c" by name: bit 29 of ECX of leaf 1.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && ((c >> 29) & 1u) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
         has_f16c();
}

// Neither compiler knows "avxvnni" by name: bit 4 of EAX of leaf 7, subleaf 1.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && ((a >> 4) & 1u) != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

// Whether the processor has tiles of bytes, and the system lets this process use them. The kernel gives them on demand,
// because they add 8 KiB to what it saves of a thread: <https://docs.kernel.org/arch/x86/xstate.html>.
bool has_amx() {
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kTiles = 1u << 24, kTilesOfBytes = 1u << 25;
  if ((d & kTiles) == 0 || (d & kTilesOfBytes) == 0) return false;
  constexpr int kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
#else
  return false;
#endif
}
#elif defined(__aarch64__)
const Kernels kNeon{"neon", kMatmulNeon, kAttendNeon, kElementwiseNeon, kDenseNeon, kProbeNeon};
const Kernels kDotprod{"dotprod", kMatmulDotprod, kAttendNeon, kElementwiseNeon, kDenseNeon, kProbeDotprod};
const Kernels kI8mm{"i8mm", kMatmulI8mm, kAttendNeon, kElementwiseNeon, kDenseNeon, kProbeI8mm};
const Kernels kI8mmBf16{"i8mm_bf16", kMatmulI8mm, kAttendNeonBf16, kElementwiseNeon, kDenseNeon, kProbeI8mm};

// What is beyond the baseline; other systems than Linux are asked for nothing.
struct ArmFeatures {
  bool dotprod = false, i8mm = false, bf16 = false;
};
ArmFeatures arm_features() {
#if defined(__linux__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {(first & HWCAP_ASIMDDP) != 0, (second & HWCAP2_I8MM) != 0,
          (first & HWCAP_ASIMDHP) != 0 && (second & HWCAP2_BF16) != 0};
#else
  return {};
#endif
}
#endif

}  // namespace

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> tables;
#if defined(__x86_64__)
  const bool bf16 = has_avx512() && __builtin_cpu_supports("avx512bf16");
  if (bf16 && has_amx()) tables.push_back(&kAmx);
  if (bf16) tables.push_back(&kAvx512Bf16);
  if (has_avx512()) tables.push_back(&kAvx512);
  if (has_avx_vnni()) tables.push_back(&kAvxVnni);
  if (has_avx2()) tables.push_back(&kAvx2);
#elif defined(__aarch64__)
  const ArmFeatures has = arm_features();
  if (has.dotprod && has.i8mm && has.bf16) tables.push_back(&kI8mmBf16);
  if (has.dotprod && has.i8mm) tables.push_back(&kI8mm);
  if (has.dotprod) tables.push_back(&kDotprod);
  tables.push_back(&kNeon);
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
