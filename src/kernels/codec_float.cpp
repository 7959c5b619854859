// f32, f16 and bf16: one element at a time, in groups of a fixed size so that compilers use vectors at -O2.
#include <limits>

#include "kernels/codec_rows.h"

namespace kvtide {
namespace {

constexpr std::int64_t kGroup = 16;

template <class T>
T load(const std::byte* at, std::int64_t i) {
  T value;
  std::memcpy(&value, at + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// f16_to_f32 (base/half.h) without branches: both answers are made, and masks of all ones or zeros pick one.
float widen_f16(std::uint16_t half) {
  const auto rest = static_cast<std::int32_t>(half) & 0x7fff;
  const std::int32_t special =
      -static_cast<std::int32_t>(rest >= 0x7c00);  // infinity and NaN: exponent 31 -> 255
  const std::int32_t normal = (rest << 13) + (112 << 23) + (special & (112 << 23));
  const auto tiny = std::bit_cast<std::int32_t>(static_cast<float>(rest) * 0x1p-24f);
  const std::int32_t is_tiny = -static_cast<std::int32_t>(rest < 0x0400);
  const std::int32_t sign =
      -(static_cast<std::int32_t>(half) >> 15) & std::numeric_limits<std::int32_t>::min();
  return std::bit_cast<float>(sign | (tiny & is_tiny) | (normal & ~is_tiny));
}

template <class T, float (*kWiden)(T)>
void decode(const std::byte* blocks, std::int64_t elements, float* out) noexcept {
  std::int64_t i = 0;
  for (; i + kGroup <= elements; i += kGroup) {
    T group[kGroup];  // a copy cannot overlap `out`
    std::memcpy(group, blocks + i * static_cast<std::int64_t>(sizeof(T)), sizeof(group));
    for (std::int64_t j = 0; j < kGroup; ++j) out[i + j] = kWiden(group[j]);
  }
  for (; i < elements; ++i) out[i] = kWiden(load<T>(blocks, i));
}

void copy_in(const std::byte* blocks, std::int64_t elements, float* out) noexcept {
  if (elements > 0) std::memcpy(out, blocks, static_cast<std::size_t>(elements) * sizeof(float));
}

void copy_out(const float* row, std::int64_t elements, std::byte* blocks) noexcept {
  if (elements > 0) std::memcpy(blocks, row, static_cast<std::size_t>(elements) * sizeof(float));
}

void narrow_f16(const float* row, std::int64_t elements, std::byte* blocks) noexcept {
  for (std::int64_t i = 0; i < elements; ++i) {
    const Half half = f32_to_f16(row[i]);
    std::memcpy(blocks + 2 * i, &half, sizeof(half));
  }
}

// All bits of the exponent set means NaN or infinity.
template <class T, T kExponent>
bool all_finite(const std::byte* blocks, std::int64_t elements) noexcept {
  std::int64_t i = 0;
  for (; i + kGroup <= elements; i += kGroup) {
    T bad = 0;
    for (std::int64_t j = 0; j < kGroup; ++j)
      bad = static_cast<T>(bad | ((load<T>(blocks, i + j) & kExponent) == kExponent ? 1 : 0));
    if (bad != 0) return false;
  }
  for (; i < elements; ++i)
    if ((load<T>(blocks, i) & kExponent) == kExponent) return false;
  return true;
}

}  // namespace

const Codec kCodecF32{DType::f32, copy_in, all_finite<std::uint32_t, 0x7f800000u>, copy_out};
const Codec kCodecF16{DType::f16, decode<std::uint16_t, widen_f16>, all_finite<std::uint16_t, 0x7c00>,
                      narrow_f16};
const Codec kCodecBF16{DType::bf16, decode<std::uint16_t, bf16_to_f32>, all_finite<std::uint16_t, 0x7f80>,
                       nullptr};

}  // namespace kvtide
