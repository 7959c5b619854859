#include "formats/split_name.h"

#include <algorithm>

namespace kvtide {
namespace {

constexpr std::size_t kDigits = 5;

std::optional<std::uint64_t> parse_digits(std::string_view text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

std::string pad(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

}  // namespace

std::optional<SplitName> SplitName::from_path(std::string_view path) {
  constexpr std::string_view kSample = "-00001-of-00003.gguf";
  if (path.size() < kSample.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kSample.size());
  const auto number = parse_digits(tail.substr(1, kDigits));
  const auto count = parse_digits(tail.substr(10, kDigits));
  if (!number || !count || suffix(*number, *count) != tail) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  return SplitName{std::string(path.substr(0, path.size() - kSample.size())), *number, *count};
}

std::string SplitName::suffix(std::uint64_t number, std::uint64_t count) {
  return "-" + pad(number) + "-of-" + pad(count) + ".gguf";
}

}  // namespace kvtide
