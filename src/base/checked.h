// checked.h: arithmetic on sizes that come from files. Every product and sum either is exact or is absent.
//
// Results are also kept below 2^63, so that a checked size is safe as std::int64_t and as a pointer
// difference.
#pragma once

#include <cstdint>
#include <optional>

namespace kvtide {

inline constexpr std::uint64_t kLargestSize = (std::uint64_t{1} << 63) - 1;

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum > kLargestSize) return std::nullopt;
  return sum;
}

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > kLargestSize) return std::nullopt;
  return product;
}

// The smallest multiple of `alignment` (a power of two) that is >= value.
inline std::optional<std::uint64_t> checked_align(std::uint64_t value, std::uint64_t alignment) {
  const auto bumped = checked_add(value, alignment - 1);
  if (!bumped) return std::nullopt;
  return *bumped & ~(alignment - 1);
}

}  // namespace kvtide
