#include "kernels/pack.h"

#include <cstring>

#include "tensor/blocks.h"
#include "tensor/panel.h"

namespace kvtide {
namespace {

// Four bytes at once: what follows moves and masks many bits of a word together.
inline std::uint32_t word_at(const void* bytes) {
  std::uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}
inline void put_word(void* bytes, std::uint32_t word) { std::memcpy(bytes, &word, sizeof word); }

// Spreads the 32 four-bit quants of one row over the panel's groups. GGUF keeps element e in the low nibble
// of byte e for e < 16 and in the high nibble of byte e - 16 otherwise; with groups of four elements, raw
// group i of the panel has exactly the same pairing, so whole bytes move: no nibble is touched.
inline void place_nibbles(std::uint8_t (*q)[64], int row, const std::uint8_t* bytes) {
  for (int group = 0; group < 4; ++group) put_word(&q[group][4 * row], word_at(bytes + 4 * group));
}

// The same for 32 quants of which each has a byte of its own, in its low nibble or, with a shift of 4, in the high one.
inline void pair_nibbles(std::uint8_t (*q)[64], int row, const std::uint8_t* bytes, int shift) {
  for (int group = 0; group < 4; ++group) {
    const std::uint32_t low = word_at(bytes + 4 * group) >> shift & 0x0f0f0f0fu,
                        high = word_at(bytes + 4 * group + 16) >> shift & 0x0f0f0f0fu;
    put_word(&q[group][4 * row], low | high << 4);
  }
}

void pack(PanelQ4_0& out, int row, const BlockQ4_0& in) {
  out.d[row] = in.d;
  place_nibbles(out.q, row, in.qs);
}

void pack(PanelQ4_1& out, int row, const BlockQ4_1& in) {
  out.d[row] = in.d;
  out.m[row] = in.m;
  place_nibbles(out.q, row, in.qs);
}

// Fifth bits: bit e belongs to element e; group j of the panel holds the four bits of its elements at bits 4 row .. + 3.
inline void place_fifth_bits(std::uint8_t (*high)[8], int row, std::uint32_t bits) {
  for (int group = 0; group < 8; ++group)
    high[group][row / 2] =
        static_cast<std::uint8_t>(high[group][row / 2] | ((bits >> (4 * group)) & 15) << (4 * (row % 2)));
}

void pack(PanelQ5_0& out, int row, const BlockQ5_0& in) {
  out.d[row] = in.d;
  place_nibbles(out.q, row, in.qs);
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= std::uint32_t{in.qh[i]} << (8 * i);
  place_fifth_bits(out.high, row, bits);
}

void pack(PanelQ8_0& out, int row, const BlockQ8_0& in) {
  out.d[row] = in.d;
  for (int group = 0; group < 8; ++group) std::memcpy(&out.q[group][4 * row], in.qs + 4 * group, 4);
}

// The eight 6-bit (scale, min) pairs of a q4_k block, from 12 bytes.
inline void unpack_scales(const std::uint8_t* s, int j, std::uint8_t* scale, std::uint8_t* min) {
  if (j < 4) {
    *scale = s[j] & 63;
    *min = s[j + 4] & 63;
  } else {
    *scale = static_cast<std::uint8_t>((s[j + 4] & 15) | ((s[j - 4] >> 6) << 4));
    *min = static_cast<std::uint8_t>((s[j + 4] >> 4) | ((s[j] >> 6) << 4));
  }
}

// Nibbles of sub-block s: sub-blocks 2 i and 2 i + 1 share 32 bytes, one in the low nibbles, one in the high ones.
inline void place_sub_block(std::uint8_t (*q)[64], int row, int s, const std::uint8_t* quants) {
  pair_nibbles(q, row, quants + 32 * (s / 2), s % 2 * 4);
}

void pack(PanelQ4K& out, int row, const BlockQ4K& in) {
  out.d[row] = in.d;
  out.dmin[row] = in.dmin;
  for (int s = 0; s < 8; ++s) {
    unpack_scales(in.scales, s, &out.sub[s].scale[row], &out.sub[s].min[row]);
    place_sub_block(out.sub[s].q, row, s, in.qs);
  }
}

void pack(PanelQ5K& out, int row, const BlockQ5K& in) {
  out.d[row] = in.d;
  out.dmin[row] = in.dmin;
  for (int s = 0; s < 8; ++s) {
    unpack_scales(in.scales, s, &out.sub[s].scale[row], &out.sub[s].min[row]);
    place_sub_block(out.sub[s].q, row, s, in.qs);
    std::uint32_t bits = 0;  // bit s of byte e belongs to element e of sub-block s
    for (int e = 0; e < 32; e += 4) {
      const std::uint32_t four = word_at(in.qh + e) >> s & 0x01010101u;
      bits |= (four * 0x01020408u >> 24 & 15) << e;  // bytes 0 to 3 become bits 24 to 27
    }
    place_fifth_bits(out.sub[s].high, row, bits);
  }
}

void pack(PanelQ6K& out, int row, const BlockQ6K& in) {
  out.d[row] = in.d;
  for (int s = 0; s < 8; ++s) {
    auto& sub = out.sub[s];
    sub.scale[0][row] = in.scales[2 * s];
    sub.scale[1][row] = in.scales[2 * s + 1];
    // Half h (128 elements) keeps four runs of 32: run t in the low (t < 2) or high nibbles of ql bytes 32 (t
    // % 2) .., and in bits 2 t .. 2 t + 1 of its 32 qh bytes.
    const int h = s / 4, t = s % 4;
    const std::uint8_t* ql = in.ql + 64 * h + 32 * (t % 2);
    const std::uint8_t* qh = in.qh + 32 * h;
    pair_nibbles(sub.q, row, ql, t < 2 ? 0 : 4);
    // A byte of the panel holds the top bits of four elements that are four apart.
    for (int half = 0; half < 2; ++half) {
      std::uint32_t tops = 0;
      for (int group = 0; group < 4; ++group)
        tops |= (word_at(qh + 16 * half + 4 * group) >> (2 * t) & 0x03030303u) << (2 * group);
      put_word(&sub.high[half][4 * row], tops);
    }
  }
}

template <class Panel, class Block>
void pack_rows(const std::byte* const rows[16], std::int64_t blocks, std::byte* panel) {
  std::memset(panel, 0, static_cast<std::size_t>(blocks) * sizeof(Panel));
  auto* out = reinterpret_cast<Panel*>(panel);
  for (std::int64_t b = 0; b < blocks; ++b)
    for (int row = 0; row < kPanelRows; ++row)
      if (rows[row] != nullptr) {
        Block block;  // copied: blocks of a file have no alignment
        std::memcpy(&block, rows[row] + b * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
        pack(out[b], row, block);
      }
}

template <class Element>
void pack_floats(const std::byte* const rows[16], std::int64_t k, std::byte* panel) {
  std::memset(panel, 0, static_cast<std::size_t>(k * kPanelRows) * sizeof(Element));
  for (int row = 0; row < kPanelRows; ++row)
    for (std::int64_t i = 0; rows[row] != nullptr && i < k; ++i)
      std::memcpy(panel + (i * kPanelRows + row) * static_cast<std::int64_t>(sizeof(Element)),
                  rows[row] + i * static_cast<std::int64_t>(sizeof(Element)), sizeof(Element));
}

}  // namespace

std::int64_t panel_bytes(DType dtype, std::int64_t k) {
  const auto shape = panel_shape(dtype);
  return k / shape->block_elements * shape->block_bytes;
}

void pack_panel(DType dtype, const std::byte* const rows[16], std::int64_t k, std::byte* panel) {
  const std::int64_t blocks = k / panel_shape(dtype)->block_elements;
  switch (dtype) {
    case DType::f32:
      return pack_floats<std::uint32_t>(rows, k, panel);
    case DType::f16:
    case DType::bf16:
      return pack_floats<std::uint16_t>(rows, k, panel);
    case DType::q4_0:
      return pack_rows<PanelQ4_0, BlockQ4_0>(rows, blocks, panel);
    case DType::q4_1:
      return pack_rows<PanelQ4_1, BlockQ4_1>(rows, blocks, panel);
    case DType::q5_0:
      return pack_rows<PanelQ5_0, BlockQ5_0>(rows, blocks, panel);
    case DType::q8_0:
      return pack_rows<PanelQ8_0, BlockQ8_0>(rows, blocks, panel);
    case DType::q4_k:
      return pack_rows<PanelQ4K, BlockQ4K>(rows, blocks, panel);
    case DType::q5_k:
      return pack_rows<PanelQ5K, BlockQ5K>(rows, blocks, panel);
    case DType::q6_k:
      return pack_rows<PanelQ6K, BlockQ6K>(rows, blocks, panel);
    default:
      return;
  }
}

}  // namespace kvtide
