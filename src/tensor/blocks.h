// blocks.h: the packed quantisation blocks of GGUF, byte for byte. Structs only; decoding is in
// kernels/codec.
//
// Source: the GGUF/ggml format description; element order inside each block is documented at the decoder.
#pragma once

#include <cstdint>

namespace kvtide {

using Half = std::uint16_t;  // bits of an IEEE binary16

#pragma pack(push, 1)
struct BlockQ4_0 {
  Half d;
  std::uint8_t qs[16];
};
struct BlockQ4_1 {
  Half d, m;
  std::uint8_t qs[16];
};
struct BlockQ5_0 {
  Half d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
struct BlockQ5_1 {
  Half d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
struct BlockQ8_0 {
  Half d;
  std::int8_t qs[32];
};
struct BlockQ2K {
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  Half d, dmin;
};
struct BlockQ3K {
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  Half d;
};
struct BlockQ4K {
  Half d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};
struct BlockQ5K {
  Half d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
struct BlockQ6K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  Half d;
};
struct BlockIQ4NL {
  Half d;
  std::uint8_t qs[16];
};
struct BlockIQ4XS {
  Half d;
  std::uint16_t scales_high;
  std::uint8_t scales_low[4];
  std::uint8_t qs[128];
};
struct BlockIQ3XXS {
  Half d;
  std::uint8_t qs[64];
  std::uint32_t signs_and_scale[8];
};
struct BlockIQ3S {
  Half d;
  std::uint8_t qs[64];
  std::uint8_t qh[8];
  std::uint8_t signs[32];
  std::uint8_t scales[4];
};
struct BlockIQ2XXS {
  Half d;
  struct {
    std::uint8_t qs[4];
    std::uint32_t signs_and_scale;
  } group[8];
};
struct BlockIQ2XS {
  Half d;
  std::uint16_t qs[32];
  std::uint8_t scales[8];
};
struct BlockIQ2S {
  Half d;
  std::uint8_t qs[32];
  std::uint8_t signs[32];
  std::uint8_t qh[8];
  std::uint8_t scales[8];
};
struct BlockIQ1S {
  Half d;
  std::uint8_t qs[32];
  std::uint16_t qh[8];
};
struct BlockIQ1M {
  std::uint8_t qs[32];
  std::uint8_t qh[16];
  std::uint16_t scales[4];  // the upper four bits of each: a quarter of the f16 scale, the lowest first
};
struct BlockTQ1_0 {
  std::uint8_t qs[48];
  std::uint8_t qh[4];
  Half d;
};
struct BlockTQ2_0 {
  std::uint8_t qs[64];
  Half d;
};
struct BlockMxfp4 {
  std::uint8_t e;  // the scale 2^(e - 127); 255: none
  std::uint8_t qs[16];
};
#pragma pack(pop)

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2K) == 84);
static_assert(sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176);
static_assert(sizeof(BlockQ6K) == 210 && sizeof(BlockIQ4NL) == 18);
static_assert(sizeof(BlockIQ4XS) == 136 && sizeof(BlockIQ3XXS) == 98 && sizeof(BlockIQ3S) == 110);
static_assert(sizeof(BlockIQ2XXS) == 66 && sizeof(BlockIQ2XS) == 74 && sizeof(BlockIQ2S) == 82);
static_assert(sizeof(BlockIQ1S) == 50 && sizeof(BlockIQ1M) == 56);
static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66 && sizeof(BlockMxfp4) == 17);

// The sixteen levels of iq4_nl and iq4_xs, in units of the scale.
inline constexpr std::int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// What the four bits of a BlockMxfp4 stand for, twice as large.
inline constexpr std::int8_t kMxfp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace kvtide
