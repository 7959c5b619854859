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
struct BlockMxfp4 {
  std::uint8_t e;  // the scale 2^(e - 127); 255: none
  std::uint8_t qs[16];
};
#pragma pack(pop)

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2K) == 84);
static_assert(sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176);
static_assert(sizeof(BlockQ6K) == 210 && sizeof(BlockIQ4NL) == 18);
static_assert(sizeof(BlockMxfp4) == 17);

// What the four bits of a BlockMxfp4 stand for, twice as large.
inline constexpr std::int8_t kMxfp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace kvtide
