// The types with blocks of 256 elements: an f16 scale for the block and small integer scales for its groups
// of 16 or 32. The scale of a group is rounded to f32 once (d * scale) before it meets an element.
#include "kernels/codec_rows.h"

namespace kvtide {
namespace {

// 16 groups of 16; `scales` holds 4 bits of scale and 4 of minimum. 2 bits per element: 32 bytes hold four
// times 32 consecutive elements, lowest bits first.
void decode_q2_k(const BlockQ2K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group] & 15);
    const float minimum = dmin * static_cast<float>(block.scales[group] >> 4);
    const std::uint8_t* qs = block.qs + group / 8 * 32 + group % 2 * 16;
    const int shift = group / 2 % 4 * 2;
    for (int i = 0; i < 16; ++i)
      out[group * 16 + i] = scale * static_cast<float>((qs[i] >> shift) & 3) - minimum;
  }
}

// 16 groups of 16; elements lie as in q2_k. Bit g of hmask[i] belongs to element 32 g + i: where it is clear,
// 4 is taken away. Scales have 6 bits with an offset of 32: the low four in the nibbles of bytes 0 to 7 (low
// nibbles first), the high two in bytes 8 to 11 (byte g % 4, bits 2 (g / 4)).
void decode_q3_k(const BlockQ3K& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int group = 0; group < 16; ++group) {
    const int low = (block.scales[group % 8] >> (group / 8 * 4)) & 15;
    const int high = (block.scales[8 + group % 4] >> (group / 4 * 2)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    const std::uint8_t* qs = block.qs + group / 8 * 32 + group % 2 * 16;
    const std::uint8_t* hmask = block.hmask + group % 2 * 16;
    const int shift = group / 2 % 4 * 2;
    const int bit = group / 2;
    for (int i = 0; i < 16; ++i) {
      const int offset = (((hmask[i] >> bit) & 1) ^ 1) << 2;
      out[group * 16 + i] = scale * static_cast<float>(((qs[i] >> shift) & 3) - offset);
    }
  }
}

// 6-bit scale and minimum of each of the 8 groups of q4_k and q5_k. Groups 0 to 3: the low six bits of bytes
// g and g + 4. Groups 4 to 7: four bits from the nibbles of byte g + 4, two from the top of bytes g - 4 and
// g.
struct GroupScales {
  explicit GroupScales(const std::uint8_t (&packed)[12]) {
    for (int g = 0; g < 4; ++g) {
      scale[g] = packed[g] & 63;
      minimum[g] = packed[g + 4] & 63;
      scale[g + 4] = static_cast<std::uint8_t>((packed[g + 8] & 15) | ((packed[g] >> 6) << 4));
      minimum[g + 4] = static_cast<std::uint8_t>((packed[g + 8] >> 4) | ((packed[g + 4] >> 6) << 4));
    }
  }
  std::uint8_t scale[8];
  std::uint8_t minimum[8];
};

// 8 groups of 32. 32 bytes hold two groups: low nibbles the first, high nibbles the second.
void decode_q4_k(const BlockQ4K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  const GroupScales groups(block.scales);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(groups.scale[group]);
    const float minimum = dmin * static_cast<float>(groups.minimum[group]);
    const std::uint8_t* qs = block.qs + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i)
      out[group * 32 + i] = scale * static_cast<float>((qs[i] >> shift) & 15) - minimum;
  }
}

// As q4_k; the fifth bit of element 32 g + i is bit g of qh[i].
void decode_q5_k(const BlockQ5K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  const GroupScales groups(block.scales);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(groups.scale[group]);
    const float minimum = dmin * static_cast<float>(groups.minimum[group]);
    const std::uint8_t* qs = block.qs + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int q = ((qs[i] >> shift) & 15) | (((block.qh[i] >> group) & 1) << 4);
      out[group * 32 + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

// 16 groups of 16 with signed 8-bit scales. Each half of 128 elements takes 64 bytes of ql and 32 of qh: runs
// of 32 elements use the low nibbles of bytes 0-31, of bytes 32-63, then the high nibbles in the same order;
// run r takes bits 2r and 2r + 1 of qh.
void decode_q6_k(const BlockQ6K& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group]);
    const int half = group / 8;
    const int run = group / 2 % 4;
    const int within = group % 2 * 16;
    const std::uint8_t* ql = block.ql + half * 64 + run % 2 * 32 + within;
    const std::uint8_t* qh = block.qh + half * 32 + within;
    const int shift = run / 2 * 4;
    for (int i = 0; i < 16; ++i) {
      const int q = ((ql[i] >> shift) & 15) | (((qh[i] >> (2 * run)) & 3) << 4);
      out[group * 16 + i] = scale * static_cast<float>(q - 32);
    }
  }
}

// 8 groups of 32 under the levels of iq4_nl. A scale has 6 bits with an offset of 32: four from the nibbles of
// scales_low, two from bits 2 g of scales_high. The low nibbles of a group's 16 bytes are its first elements.
void decode_iq4_xs(const BlockIQ4XS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int group = 0; group < 8; ++group) {
    const int low = (block.scales_low[group / 2] >> (group % 2 * 4)) & 15;
    const int high = (block.scales_high >> (2 * group)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    const std::uint8_t* qs = block.qs + group * 16;
    for (int i = 0; i < 16; ++i) {
      out[group * 32 + i] = scale * static_cast<float>(kIq4Levels[qs[i] & 15]);
      out[group * 32 + 16 + i] = scale * static_cast<float>(kIq4Levels[qs[i] >> 4]);
    }
  }
}

// `count` bytes hold `digits` times `count` consecutive elements. A byte is a fraction of 256 in base 3, the first
// element its first digit; digit n comes to the front when the byte is multiplied by 3^n.
void decode_digits(const std::uint8_t* bytes, int count, int digits, float d, float* out) {
  int power = 1;
  for (int n = 0; n < digits; ++n, power *= 3)
    for (int i = 0; i < count; ++i) {
      const int rest = (bytes[i] * power) & 255;
      out[n * count + i] = d * static_cast<float>((rest * 3 >> 8) - 1);
    }
}

// Elements are -1, 0 or 1. Five digits to a byte, then four.
void decode_tq1_0(const BlockTQ1_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  decode_digits(block.qs, 32, 5, d, out);
  decode_digits(block.qs + 32, 16, 5, d, out + 160);
  decode_digits(block.qh, 4, 4, d, out + 240);
}

// Elements are -1, 0, 1 or 2. 32 bytes hold four times 32 consecutive elements, lowest bits first.
void decode_tq2_0(const BlockTQ2_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int run = 0; run < 8; ++run)
    for (int i = 0; i < 32; ++i) {
      const int q = (block.qs[run / 4 * 32 + i] >> (run % 4 * 2)) & 3;
      out[run * 32 + i] = d * static_cast<float>(q - 1);
    }
}

}  // namespace

const Codec kCodecQ2K{DType::q2_k, decode_blocks<BlockQ2K, 256, decode_q2_k>,
                      blocks_finite<BlockQ2K, 256, &BlockQ2K::d, &BlockQ2K::dmin>, nullptr};
const Codec kCodecQ3K{DType::q3_k, decode_blocks<BlockQ3K, 256, decode_q3_k>,
                      blocks_finite<BlockQ3K, 256, &BlockQ3K::d>, nullptr};
const Codec kCodecQ4K{DType::q4_k, decode_blocks<BlockQ4K, 256, decode_q4_k>,
                      blocks_finite<BlockQ4K, 256, &BlockQ4K::d, &BlockQ4K::dmin>, nullptr};
const Codec kCodecQ5K{DType::q5_k, decode_blocks<BlockQ5K, 256, decode_q5_k>,
                      blocks_finite<BlockQ5K, 256, &BlockQ5K::d, &BlockQ5K::dmin>, nullptr};
const Codec kCodecQ6K{DType::q6_k, decode_blocks<BlockQ6K, 256, decode_q6_k>,
                      blocks_finite<BlockQ6K, 256, &BlockQ6K::d>, nullptr};
const Codec kCodecIQ4XS{DType::iq4_xs, decode_blocks<BlockIQ4XS, 256, decode_iq4_xs>,
                        blocks_finite<BlockIQ4XS, 256, &BlockIQ4XS::d>, nullptr};
const Codec kCodecTQ1_0{DType::tq1_0, decode_blocks<BlockTQ1_0, 256, decode_tq1_0>,
                        blocks_finite<BlockTQ1_0, 256, &BlockTQ1_0::d>, nullptr};
const Codec kCodecTQ2_0{DType::tq2_0, decode_blocks<BlockTQ2_0, 256, decode_tq2_0>,
                        blocks_finite<BlockTQ2_0, 256, &BlockTQ2_0::d>, nullptr};

}  // namespace kvtide
