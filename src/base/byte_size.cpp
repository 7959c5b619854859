#include "base/byte_size.h"

#include <charconv>
#include <system_error>

namespace kvtide {
namespace {

// Takes "K", "MB", "GiB" ... off the end of a number, and what stands before it; gives how many bytes it means.
double take_unit(std::string_view& digits) {
  const auto take = [&](char letter) {
    if (digits.empty() || (digits.back() | 0x20) != letter) return false;
    digits.remove_suffix(1);
    return true;
  };
  const std::string_view whole = digits;
  if (take('b')) take('i');
  double unit = 1.0;
  for (const char letter : std::string_view("kmgt")) {
    unit *= 1024.0;
    if (!take(letter)) continue;
    while (take(' ')) continue;
    return unit;
  }
  digits = whole;
  if (take('b'))
    while (take(' ')) continue;
  return 1.0;
}

}  // namespace

std::optional<std::int64_t> parse_byte_size(std::string_view text) {
  const double unit = take_unit(text);
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stopped != end || !(value >= 0.0 && value <= 0x1p50 / unit))
    return std::nullopt;
  return static_cast<std::int64_t>(value * unit);
}

}  // namespace kvtide
