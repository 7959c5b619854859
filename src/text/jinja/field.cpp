// One value of a formatted text: a number in a notation, filled up to a width.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {
namespace fields {
namespace {

constexpr std::int64_t kMostWidth = 1 << 20;

std::string whole_digits(std::int64_t value, const FieldStyle& style) {
  const int base = style.type == 'x' || style.type == 'X' ? 16
                   : style.type == 'o'                    ? 8
                   : style.type == 'b'                    ? 2
                                                          : 10;
  char digits[80];
  const auto size = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, size, base).ptr);
  if (style.type == 'X')
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'a' ? static_cast<char>(c - 32) : c; });
  if (style.alternate && base != 10) text = cat('0', style.type, text);
  return text;
}

std::string real_digits(double value, const FieldStyle& style) {
  const double size = std::fabs(value);
  if (std::isnan(size)) return "nan";
  if (std::isinf(size)) return "inf";
  if (style.type == 0 && style.precision < 0) return real_text(size);
  char digits[512];
  const char kind = style.type == '%' ? 'f' : style.type == 0 ? 'g' : style.type;
  const char format[] = {'%', '.', '*', kind, '\0'};
  const int precision =
      static_cast<int>(std::min<std::int64_t>(style.precision < 0 ? 6 : style.precision, 60));
  const int length =
      std::snprintf(digits, sizeof digits, format, precision, style.type == '%' ? size * 100 : size);
  std::string text(digits, static_cast<std::size_t>(std::clamp(length, 0, 511)));
  if (style.type == 0 && text.find_first_of(".en") == text.npos) text += ".0";
  if (style.type == '%') text += '%';
  return text;
}

// Separators between groups of three digits before the point.
std::string grouped(const std::string& digits, char by) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % 3 == 0) out += by;
    out += digits[i];
  }
  return out + digits.substr(end);
}

}  // namespace
}  // namespace fields

MarkedText aligned(Run& run, const MarkedText& text, const FieldStyle& style, char usual) {
  const std::int64_t missing = style.width - static_cast<std::int64_t>(character_count(text.view()));
  if (style.width > fields::kMostWidth) run.refuse("a field is too wide");
  if (missing <= 0) return text;
  run.charge(static_cast<std::size_t>(missing) * style.fill.size());
  const char align = style.align != 0 ? style.align : usual;
  const std::int64_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  MarkedText out;
  for (std::int64_t i = 0; i < before; ++i) out.append(style.fill);
  out.append(text);
  for (std::int64_t i = before; i < missing; ++i) out.append(style.fill);
  return out;
}

MarkedText written_number(Run& run, const Value& number, const FieldStyle& style) {
  const bool as_real =
      number.real() != nullptr ||
      (style.type != 0 && std::string_view("eEfFgG%").find(style.type) != std::string_view::npos);
  const bool is_negative =
      as_real ? std::signbit(*number.number()) && !std::isnan(*number.number()) : *number.whole() < 0;
  if (!as_real && style.type != 0 && std::string_view("dxXobn").find(style.type) == std::string_view::npos)
    run.refuse(cat("Unknown format code '", style.type, "' for object of type '", number.type_name(), "'"));
  if (number.real() != nullptr && style.type != 0 &&
      std::string_view("eEfFgGn%").find(style.type) == std::string_view::npos)
    run.refuse(cat("Unknown format code '", style.type, "' for object of type 'float'"));
  std::string digits =
      as_real ? fields::real_digits(*number.number(), style) : fields::whole_digits(*number.whole(), style);
  if (style.group != 0) digits = fields::grouped(digits, style.group);
  const std::string sign = is_negative ? "-" : style.sign == '-' ? "" : std::string(1, style.sign);
  if (style.align != '=') return aligned(run, sign + digits, style, '>');
  FieldStyle rest = style;
  rest.align = '>';
  rest.width -= static_cast<std::int64_t>(sign.size());
  MarkedText out(sign);
  out.append(aligned(run, digits, rest, '>'));
  return out;
}

}  // namespace kvtide::jinja
