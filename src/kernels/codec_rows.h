// codec_rows.h: the rows of the codec table, one per file of decoders. Private to the codec.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "kernels/codec_functions.h"
#include "tensor/blocks.h"

namespace kvtide {

extern const Codec kCodecF32, kCodecF16, kCodecBF16;                               // codec_float.cpp
extern const Codec kCodecQ4_0, kCodecQ4_1, kCodecQ5_0, kCodecQ5_1, kCodecQ8_0;     // codec_block32.cpp
extern const Codec kCodecIQ4NL, kCodecMxfp4;                                       // codec_block32.cpp
extern const Codec kCodecQ2K, kCodecQ3K, kCodecQ4K, kCodecQ5K, kCodecQ6K;          // codec_block256.cpp
extern const Codec kCodecIQ4XS, kCodecTQ1_0, kCodecTQ2_0;                          // codec_block256.cpp
extern const Codec kCodecIQ3XXS, kCodecIQ3S;                                       // codec_codebooks.cpp
extern const Codec kCodecIQ2XXS, kCodecIQ2XS, kCodecIQ2S, kCodecIQ1S, kCodecIQ1M;  // codec_codebooks.cpp

// Calls one(block, out) for each block of a row: what all quantised decoders share.
template <class Block, std::int64_t kElements, void (*kOne)(const Block&, float*)>
void decode_blocks(const std::byte* blocks, std::int64_t elements, float* out) noexcept {
  for (std::int64_t i = 0; i < elements; i += kElements, blocks += sizeof(Block)) {
    Block block;
    std::memcpy(&block, blocks, sizeof(Block));
    kOne(block, out + i);
  }
}

inline bool half_finite(Half half) { return (half & 0x7c00u) != 0x7c00u; }

// Whether the named scales of every block are finite.
template <class Block, std::int64_t kElements, Half Block::*... kScales>
bool blocks_finite(const std::byte* blocks, std::int64_t elements) noexcept {
  for (std::int64_t i = 0; i < elements; i += kElements, blocks += sizeof(Block)) {
    Block block;
    std::memcpy(&block, blocks, sizeof(Block));
    if (!(half_finite(block.*kScales) && ...)) return false;
  }
  return true;
}

}  // namespace kvtide
