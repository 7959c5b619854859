#include "kernels/codec.h"

#include <cassert>

#include "kernels/codec_rows.h"

namespace kvtide {

const Codec& codec(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return kCodecF32;
    case DType::f16:
      return kCodecF16;
    case DType::bf16:
      return kCodecBF16;
    case DType::q4_0:
      return kCodecQ4_0;
    case DType::q4_1:
      return kCodecQ4_1;
    case DType::q5_0:
      return kCodecQ5_0;
    case DType::q5_1:
      return kCodecQ5_1;
    case DType::q8_0:
      return kCodecQ8_0;
    case DType::iq4_nl:
      return kCodecIQ4NL;
    case DType::mxfp4:
      return kCodecMxfp4;
    case DType::q2_k:
      return kCodecQ2K;
    case DType::q3_k:
      return kCodecQ3K;
    case DType::q4_k:
      return kCodecQ4K;
    case DType::q5_k:
      return kCodecQ5K;
    case DType::q6_k:
      return kCodecQ6K;
    case DType::iq4_xs:
      return kCodecIQ4XS;
    case DType::iq3_xxs:
      return kCodecIQ3XXS;
    case DType::iq3_s:
      return kCodecIQ3S;
    case DType::iq2_xxs:
      return kCodecIQ2XXS;
    case DType::iq2_xs:
      return kCodecIQ2XS;
    case DType::iq2_s:
      return kCodecIQ2S;
    case DType::iq1_s:
      return kCodecIQ1S;
    case DType::iq1_m:
      return kCodecIQ1M;
    case DType::tq1_0:
      return kCodecTQ1_0;
    case DType::tq2_0:
      return kCodecTQ2_0;
  }
  assert(false && "a DType outside its enumeration");
  return kCodecF32;
}

}  // namespace kvtide
