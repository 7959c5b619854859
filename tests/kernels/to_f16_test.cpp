#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"

namespace kvtide {
namespace {

// Every f16 number, every tie between two neighbours, and the f32 numbers on both sides of each.
std::vector<float> all_halves_and_ties() {
  std::vector<float> out;
  for (std::uint32_t bits = 0; bits <= 0x7c00; ++bits) {
    const int exponent = static_cast<int>(bits >> 10), mantissa = static_cast<int>(bits & 1023);
    const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                      : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    const float half_step = std::ldexp(1.0f, (exponent == 0 ? 1 : exponent) - 26);
    for (const float x : {value, value + half_step})
      for (const float y : {std::nextafter(x, -1.0f), x, std::nextafter(x, 1e9f)})
        for (const float z : {y, -y}) out.push_back(z);
  }
  for (const float x : {1e-45f, 65519.996f, 65520.0f, 65535.0f, 65536.0f, 1e9f, 3.4e38f, INFINITY})
    for (const float z : {x, -x}) out.push_back(z);
  return out;
}

// Nearest even by its definition: among the two neighbours the nearer, and of two equally near ones the even.
std::uint16_t nearest_even(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  const std::uint32_t sign = std::signbit(x) ? 0x8000u : 0u;
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7c00u);
  const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  const double steps = std::ldexp(magnitude, 10 - exponent);  // exact: a power of two
  double whole = std::floor(steps);
  const double rest = steps - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) == 1.0)) whole += 1.0;
  // A carry out of the mantissa increments the exponent field, as it should.
  const auto field = static_cast<std::uint32_t>(exponent + 14) * 1024u;
  return static_cast<std::uint16_t>(sign | (field + static_cast<std::uint32_t>(whole)));
}

TEST(ToF16, RoundsToNearestEvenOnEveryTie_OnEveryTable) {
  const auto x = all_halves_and_ties();
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::uint16_t> y(x.size());
    kernels->elementwise.to_f16(x.data(), static_cast<std::int64_t>(x.size()), y.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], nearest_even(x[i])) << kernels->isa << " " << std::hexfloat << x[i];
  }
}

TEST(ToF16, AgreesWithThePortableConversion_AndKeepsNanANan) {
  auto x = all_halves_and_ties();
  x.push_back(std::nanf(""));
  x.push_back(std::bit_cast<float>(0x7f800001u));
  x.push_back(std::bit_cast<float>(0xffc12345u));
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::uint16_t> y(x.size());
    kernels->elementwise.to_f16(x.data(), static_cast<std::int64_t>(x.size()), y.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], f32_to_f16(x[i])) << kernels->isa << " " << std::hexfloat << x[i];
    for (std::size_t i = x.size() - 3; i < x.size(); ++i)
      EXPECT_TRUE((y[i] & 0x7fff) > 0x7c00) << kernels->isa;
  }
}

TEST(ToF16, WritesExactlyItsElements) {
  const auto all = all_halves_and_ties();
  for (const Kernels* kernels : available_kernels())
    for (const std::int64_t n : {1, 7, 15, 16, 17, 33}) {
      std::vector<std::uint16_t> y(static_cast<std::size_t>(n) + 1, 0xdead);
      kernels->elementwise.to_f16(all.data() + 1000, n, y.data());
      EXPECT_EQ(y.back(), 0xdead) << kernels->isa << " n " << n;
      for (std::size_t i = 0; i + 1 < y.size(); ++i) EXPECT_EQ(y[i], nearest_even(all[1000 + i]));
    }
}

}  // namespace
}  // namespace kvtide
