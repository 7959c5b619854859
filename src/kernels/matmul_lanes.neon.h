// matmul_lanes.neon.h: what matmul_decode.inl is written on for Advanced SIMD, and the bytes of quants for
// matmul_strips.inl. Four registers of four lanes hold the sixteen rows of a panel.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/matmul_kernel.h"

namespace kvtide {
namespace {

struct Float16 {
  float32x4_t v[4];
};
struct Int16 {
  int32x4_t v[4];
};

// f of every register.
template <class R, class F, class... A>
inline R map(F f, const A&... a) {
  return {{f(a.v[0]...), f(a.v[1]...), f(a.v[2]...), f(a.v[3]...)}};
}

inline float32x4_t four_halves(const Half* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline Float16 half16(const Half* p) {
  return {{four_halves(p), four_halves(p + 4), four_halves(p + 8), four_halves(p + 12)}};
}
inline Float16 bf16_16(const std::uint16_t* p) {
  const auto four = [p](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + i), 16)); };
  return {{four(0), four(4), four(8), four(12)}};
}
inline Float16 load(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
inline void store(float* p, Float16 a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
inline Float16 to_float(Int16 a) {
  return map<Float16>([](auto x) { return vcvtq_f32_s32(x); }, a);
}
inline Float16 set1(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {{v, v, v, v}};
}
inline Float16 mul(Float16 a, Float16 b) {
  return map<Float16>([](auto x, auto y) { return vmulq_f32(x, y); }, a, b);
}
inline Float16 add(Float16 a, Float16 b) {
  return map<Float16>([](auto x, auto y) { return vaddq_f32(x, y); }, a, b);
}
inline Float16 subtract(Float16 a, Float16 b) {
  return map<Float16>([](auto x, auto y) { return vsubq_f32(x, y); }, a, b);
}
inline Float16 fma(Float16 a, Float16 b, Float16 c) {
  return map<Float16>([](auto x, auto y, auto z) { return vfmaq_f32(z, x, y); }, a, b, c);
}

// Four bytes as integers.
inline int32x4_t four_bytes(const std::uint8_t* p) {
  std::uint32_t word = 0;
  __builtin_memcpy(&word, p, 4);
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(word))))));
}
inline int32x4_t four_bytes(const std::int8_t* p) {
  std::uint32_t word = 0;
  __builtin_memcpy(&word, p, 4);
  return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(word)))));
}
template <class Byte>
inline Int16 bytes_to_int(const Byte* p) {
  return {{four_bytes(p), four_bytes(p + 4), four_bytes(p + 8), four_bytes(p + 12)}};
}

// Nibbles of bytes whose low ones belong to the groups 0 to 3 of a block, the high ones to 4 to 7.
inline uint8x16_t nibbles(uint8x16_t raw, bool high) {
  return high ? vshrq_n_u8(raw, 4) : vandq_u8(raw, vdupq_n_u8(15));
}
// 16 where a byte has the bit that `select` has in its place.
inline uint8x16_t sixteen_where(uint8x16_t bytes, std::uint64_t select_low, std::uint64_t select_high) {
  const uint8x16_t select =
      vreinterpretq_u8_u64(vcombine_u64(vdup_n_u64(select_low), vdup_n_u64(select_high)));
  return vandq_u8(vtstq_u8(bytes, select), vdupq_n_u8(16));
}
// Bits 2 i .. 2 i + 1 of every byte, at bits 4 .. 5.
inline uint8x16_t two_bits(uint8x16_t raw, int i) {
  const uint8x16_t mask = vdupq_n_u8(0x30);
  return i == 0   ? vandq_u8(vshlq_n_u8(raw, 4), mask)
         : i == 1 ? vandq_u8(vshlq_n_u8(raw, 2), mask)
         : i == 2 ? vandq_u8(raw, mask)
                  : vandq_u8(vshrq_n_u8(raw, 2), mask);
}

// Quants of group g (0 to 7) of a block for all rows, offset included.
template <class F>
inline Int16 group_of(F f) {
  return {{vreinterpretq_s32_u8(f(0)), vreinterpretq_s32_u8(f(1)), vreinterpretq_s32_u8(f(2)),
           vreinterpretq_s32_u8(f(3))}};
}
inline Int16 nibble_group(const std::uint8_t (*q)[64], int g) {
  return group_of([=](int v) { return nibbles(vld1q_u8(q[g % 4] + 16 * v), g >= 4); });
}
inline Int16 five_bit_group(const std::uint8_t (*q)[64], const std::uint8_t (*high)[8], int g) {
  return group_of([=](int v) {
    const uint8x16_t bits = vcombine_u8(vdup_n_u8(high[g][2 * v]), vdup_n_u8(high[g][2 * v + 1]));
    return vorrq_u8(nibbles(vld1q_u8(q[g % 4] + 16 * v), g >= 4),
                    sixteen_where(bits, 0x8040201008040201u, 0x8040201008040201u));
  });
}
inline Int16 six_bit_group(const PanelQ6K::Sub& sub, int g) {
  return group_of([&](int v) {
    return vorrq_u8(nibbles(vld1q_u8(sub.q[g % 4] + 16 * v), g >= 4),
                    two_bits(vld1q_u8(sub.high[g / 4] + 16 * v), g % 4));
  });
}
inline Int16 byte_group(const std::int8_t* q) {  // q + 128
  return group_of(
      [=](int v) { return veorq_u8(vreinterpretq_u8_s8(vld1q_s8(q + 16 * v)), vdupq_n_u8(0x80)); });
}
inline Float16 byte_of(Int16 group, int c, int offset) {
  return map<Float16>(
      [=](auto x) {
        const uint32x4_t moved = vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(-8 * c));
        const int32x4_t byte = vreinterpretq_s32_u32(vandq_u32(moved, vdupq_n_u32(255)));
        return vcvtq_f32_s32(vsubq_s32(byte, vdupq_n_s32(offset)));
      },
      group);
}

template <int... kRows>
struct RowCounts {};
using GemmRows = RowCounts<6, 2, 1>;

}  // namespace
}  // namespace kvtide
