#include "text/jinja/number_reading.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "text/jinja/spaces.h"
#include "text/normalize.h"

namespace kvtide::jinja {
namespace number_reading {
namespace {

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(leading_spaces(text));
  text.remove_suffix(trailing_spaces(text));
  return text;
}

// Single underscores may stand between digits. nullopt: one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  const auto is_digit = [](char c) {
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      out += text[i];
    else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
      return std::nullopt;
  }
  return out;
}

}  // namespace
}  // namespace number_reading

std::optional<std::int64_t> read_whole(std::string_view text, int base) {
  auto digits = number_reading::without_underscores(number_reading::without_spaces(text));
  if (!digits || digits->empty() || base == 1 || base > 36 || base < 0) return std::nullopt;
  const bool is_negative = digits->front() == '-';
  if (is_negative || digits->front() == '+') digits->erase(0, 1);
  if (digits->size() > 2 && digits->front() == '0') {
    const char kind = static_cast<char>((*digits)[1] | 0x20);
    const int named = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      digits->erase(0, 2);
      base = named;
    }
  }
  if (base == 0) base = 10;
  if (digits->empty() || digits->front() == '-' || digits->front() == '+') return std::nullopt;
  if (is_negative) digits = "-" + *digits;
  std::int64_t value = 0;
  const auto result = std::from_chars(digits->data(), digits->data() + digits->size(), value, base);
  if (result.ec != std::errc() || result.ptr != digits->data() + digits->size()) return std::nullopt;
  return value;
}

std::optional<double> read_real(std::string_view text) {
  auto digits = number_reading::without_underscores(number_reading::without_spaces(text));
  if (!digits || digits->empty()) return std::nullopt;
  const bool is_negative = digits->front() == '-';
  if (is_negative || digits->front() == '+') digits->erase(0, 1);
  if (digits->empty() || digits->front() == '-' || digits->front() == '+') return std::nullopt;
  const std::string low = lowercased(*digits);
  const double sign = is_negative ? -1 : 1;
  if (low == "inf" || low == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (low == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (!(low.front() == '.' || (low.front() >= '0' && low.front() <= '9'))) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(low.data(), low.data() + low.size(), value);
  if (result.ptr != low.data() + low.size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range)
    value = low.find("e-") != low.npos ? 0 : std::numeric_limits<double>::infinity();
  return sign * value;
}

}  // namespace kvtide::jinja
