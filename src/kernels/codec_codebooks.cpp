// The types whose blocks of 256 elements are points of a codebook under an f16 scale and small scales for groups of
// 16 or 32: iq3 (points of four elements), iq2 and iq1 (of eight). Points of iq3 and iq2 are magnitudes; a bit for
// every element, the lowest first, says that it is negative. Where only seven of eight are stored, the number of
// negative elements is even.
#include <bit>

#include "kernels/codebooks.h"
#include "kernels/codec_rows.h"

namespace kvtide {
namespace {

// The signs of eight elements from seven.
unsigned even_signs(unsigned seven) { return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7; }

template <std::size_t kElements>
void put(const std::array<std::uint8_t, kElements>& point, unsigned negative, float scale, float* out) {
  for (std::size_t i = 0; i < kElements; ++i) {
    const float magnitude = scale * static_cast<float>(point[i]);
    out[i] = (negative >> i & 1) != 0 ? -magnitude : magnitude;
  }
}

unsigned nibble(const std::uint8_t* bytes, int i) { return bytes[i / 2] >> (i % 2 * 4) & 15u; }

// Four times seven signs, and the scale above them.
void decode_iq3_xxs(const BlockIQ3XXS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int group = 0; group < 8; ++group) {
    const std::uint32_t word = block.signs_and_scale[group];
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    for (int i = 0; i < 4; ++i) {
      const unsigned negative = even_signs(word >> (7 * i) & 127);
      const std::uint8_t* qs = block.qs + group * 8 + i * 2;
      float* to = out + group * 32 + i * 8;
      put(codebook::kIq3Xxs[qs[0]], negative, scale, to);
      put(codebook::kIq3Xxs[qs[1]], negative >> 4, scale, to + 4);
    }
  }
}

// The ninth bit of index i is bit i % 8 of qh[i / 8].
void decode_iq3_s(const BlockIQ3S& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 64; ++i) {
    const float scale = d * static_cast<float>(1 + 2 * nibble(block.scales, i / 8));
    const unsigned index = block.qs[i] | (block.qh[i / 8] >> (i % 8) & 1u) << 8;
    put(codebook::kIq3S[index], nibble(block.signs, i), scale, out + i * 4);
  }
}

void decode_iq2_xxs(const BlockIQ2XXS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int group = 0; group < 8; ++group) {
    const std::uint32_t word = block.group[group].signs_and_scale;
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
    for (int i = 0; i < 4; ++i)
      put(codebook::kIq2Xxs[block.group[group].qs[i]], even_signs(word >> (7 * i) & 127), scale,
          out + group * 32 + i * 8);
  }
}

// A scale of iq2_xs and iq2_s, of 16 elements.
float scale_of_16(float d, const std::uint8_t* scales, int group) {
  return d * (0.5f + static_cast<float>(nibble(scales, group))) * 0.25f;
}

// Nine bits of index and seven signs to a point.
void decode_iq2_xs(const BlockIQ2XS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) {
    const unsigned q = block.qs[i];
    put(codebook::kIq2Xs[q & 511], even_signs(q >> 9), scale_of_16(d, block.scales, i / 2), out + i * 8);
  }
}

// The upper two bits of index i are bits 2 (i % 4) of qh[i / 4].
void decode_iq2_s(const BlockIQ2S& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) {
    const unsigned index = block.qs[i] | (block.qh[i / 4] >> (i % 4 * 2) & 3u) << 8;
    put(codebook::kIq2S[index], block.signs[i], scale_of_16(d, block.scales, i / 2), out + i * 8);
  }
}

// -1, 0 or 1, all moved by an eighth: up, or down.
void put_moved(unsigned index, bool down, float scale, float* out) {
  const float move = down ? -0.125f : 0.125f;
  for (const std::int8_t value : codebook::kIq1[index]) *out++ = scale * (static_cast<float>(value) + move);
}

// Groups of 32: four times three bits of indices, three bits of scale and one that says where elements move.
void decode_iq1_s(const BlockIQ1S& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) {
    const unsigned qh = block.qh[i / 4];
    const float scale = d * static_cast<float>(2 * (qh >> 12 & 7) + 1);
    const unsigned index = block.qs[i] | (qh >> (i % 4 * 3) & 7) << 8;
    put_moved(index, (qh & 0x8000) != 0, scale, out + i * 8);
  }
}

Half scale_of(const BlockIQ1M& block) {
  unsigned d = 0;
  for (int i = 0; i < 4; ++i) d |= (block.scales[i] >> 12 & 15u) << (4 * i);
  return static_cast<Half>(d);
}

// A nibble of qh for every point: three bits of its index and where it moves. Three bits of scale for 16 elements.
void decode_iq1_m(const BlockIQ1M& block, float* out) {
  const float d = f16_to_f32(scale_of(block));
  for (int i = 0; i < 32; ++i) {
    const int group = i / 2;
    const float scale = d * static_cast<float>(2 * (block.scales[group / 4] >> (group % 4 * 3) & 7u) + 1);
    const unsigned high = nibble(block.qh, i);
    put_moved(block.qs[i] | (high & 7) << 8, (high & 8) != 0, scale, out + i * 8);
  }
}

bool iq1_m_finite(const std::byte* blocks, std::int64_t elements) noexcept {
  for (std::int64_t i = 0; i < elements; i += 256, blocks += sizeof(BlockIQ1M)) {
    BlockIQ1M block;
    std::memcpy(&block, blocks, sizeof(block));
    if (!half_finite(scale_of(block))) return false;
  }
  return true;
}

}  // namespace

const Codec kCodecIQ3XXS{DType::iq3_xxs, decode_blocks<BlockIQ3XXS, 256, decode_iq3_xxs>,
                         blocks_finite<BlockIQ3XXS, 256, &BlockIQ3XXS::d>, nullptr};
const Codec kCodecIQ3S{DType::iq3_s, decode_blocks<BlockIQ3S, 256, decode_iq3_s>,
                       blocks_finite<BlockIQ3S, 256, &BlockIQ3S::d>, nullptr};
const Codec kCodecIQ2XXS{DType::iq2_xxs, decode_blocks<BlockIQ2XXS, 256, decode_iq2_xxs>,
                         blocks_finite<BlockIQ2XXS, 256, &BlockIQ2XXS::d>, nullptr};
const Codec kCodecIQ2XS{DType::iq2_xs, decode_blocks<BlockIQ2XS, 256, decode_iq2_xs>,
                        blocks_finite<BlockIQ2XS, 256, &BlockIQ2XS::d>, nullptr};
const Codec kCodecIQ2S{DType::iq2_s, decode_blocks<BlockIQ2S, 256, decode_iq2_s>,
                       blocks_finite<BlockIQ2S, 256, &BlockIQ2S::d>, nullptr};
const Codec kCodecIQ1S{DType::iq1_s, decode_blocks<BlockIQ1S, 256, decode_iq1_s>,
                       blocks_finite<BlockIQ1S, 256, &BlockIQ1S::d>, nullptr};
const Codec kCodecIQ1M{DType::iq1_m, decode_blocks<BlockIQ1M, 256, decode_iq1_m>, iq1_m_finite, nullptr};

}  // namespace kvtide
