#include <algorithm>

#include "base/text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/value_text.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace braces {
namespace {

class Formatter {
 public:
  Formatter(Run& run, const Arguments& values) : run_(run), values_(values) {}

  MarkedText format(const MarkedText& pattern, int depth = 0) {
    if (depth > 1) run_.refuse("Max string recursion exceeded");
    const std::string_view text = pattern.view();
    MarkedText out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(pattern, at, brace);
      at = brace;
      if (at == text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        out.append(pattern, at, at + 1);
        at += 2;
        continue;
      }
      if (text[at] == '}') run_.refuse("Single '}' encountered in format string");
      const std::size_t close = end_of_field(text, at);
      out.append(field(pattern.part(at + 1, close), depth));
      run_.charge(out.size() / 16);
      at = close + 1;
    }
    return out;
  }

 private:
  std::size_t end_of_field(std::string_view text, std::size_t at) const {
    int open = 0;
    for (; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    run_.refuse("expected '}' before end of string");
  }

  MarkedText field(const MarkedText& inside, int depth) {
    const std::string_view text = inside.view();
    const std::size_t name_end = std::min(text.find_first_of("!:"), text.size());
    const Value value = find(text.substr(0, name_end));
    std::size_t at = name_end;
    char conversion = 0;
    if (at < text.size() && text[at] == '!') {
      conversion = at + 1 < text.size() ? text[at + 1] : '\0';
      if (conversion != 'r' && conversion != 's' && conversion != 'a')
        run_.refuse("expected r or s behind '!' in a format");
      at += 2;
      if (at < text.size() && text[at] != ':') run_.refuse("expected ':' after conversion specifier");
    }
    const MarkedText spec =
        at < text.size() ? format(inside.part(at + 1, text.size()), depth + 1) : MarkedText();
    if (conversion == 0) return written(value, spec.view());
    return written(Value(conversion == 's' ? printed(run_, value) : represented(run_, value)), spec.view());
  }

  // "0", "name", "name.attribute[key]".
  Value find(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view first = path.substr(0, end);
    Value value = root(first);
    for (std::size_t at = end; at < path.size();) {
      const bool is_item = path[at] == '[';
      const std::size_t stop =
          is_item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
      if (stop == path.npos) run_.refuse("Missing ']' in format string");
      const std::string_view name = path.substr(at + 1, stop - at - 1);
      const auto place = is_item ? whole(name) : std::nullopt;
      value = is_item ? item_of(run_, value, place ? Value(*place) : Value::text(name))
                      : attribute_of(run_, value, name);
      run_.refuse_undefined(value);
      at = stop + (is_item ? 1 : 0);
    }
    return value;
  }

  static std::optional<std::int64_t> whole(std::string_view text) {
    if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != text.npos)
      return std::nullopt;
    std::int64_t value = 0;
    for (const char c : text) value = value * 10 + (c - '0');
    return value;
  }

  Value root(std::string_view name) {
    const auto place = name.empty() ? static_cast<std::int64_t>(next_++) : whole(name).value_or(-1);
    if (place >= 0) {
      if (static_cast<std::size_t>(place) >= values_.positional.size())
        run_.refuse(cat("Replacement index ", place, " out of range for positional args tuple"));
      return values_.positional[static_cast<std::size_t>(place)];
    }
    for (const auto& [key, value] : values_.named)
      if (key == name) return value;
    run_.refuse(cat("the format names ", quoted(name), ", which it was not given"));
  }

  FieldStyle style_of(std::string_view spec) {
    FieldStyle style;
    std::size_t at = 0;
    const auto is_align = [&](std::size_t i) {
      return i < spec.size() && std::string_view("<>=^").find(spec[i]) != spec.npos;
    };
    const std::size_t first = spec.empty() ? 0 : utf8_length(spec[0]);
    if (is_align(first)) {
      style.fill = spec.substr(0, first);
      style.align = spec[first];
      at = first + 1;
    } else if (is_align(0)) {
      style.align = spec[at++];
    }
    const auto skip = [&](char c) { return at < spec.size() && spec[at] == c && (++at, true); };
    if (at < spec.size() && (spec[at] == '+' || spec[at] == '-' || spec[at] == ' ')) style.sign = spec[at++];
    style.alternate = skip('#');
    if (skip('0') && style.align == 0) style.align = '=', style.fill = "0";
    const auto number = [&] {
      std::int64_t value = 0;
      for (; at < spec.size() && spec[at] >= '0' && spec[at] <= '9'; ++at)
        value = std::min<std::int64_t>(value * 10 + (spec[at] - '0'), 1 << 24);
      return value;
    };
    style.width = number();
    if (at < spec.size() && (spec[at] == ',' || spec[at] == '_')) style.group = spec[at++];
    if (skip('.')) style.precision = number();
    if (at < spec.size()) style.type = spec[at++];
    if (at < spec.size()) run_.refuse(cat("Invalid format specifier ", quoted(spec)));
    return style;
  }

  MarkedText written(const Value& value, std::string_view spec) {
    if (spec.empty()) return printed(run_, value);
    FieldStyle style = style_of(spec);
    if (value.number() && style.type != 's') {
      if (value.boolean() != nullptr && style.type == 0)
        return aligned(run_, printed(run_, value), style, '>');
      return written_number(run_, value, style);
    }
    if (value.marked() == nullptr)
      run_.refuse(cat("unsupported format string passed to ", value.type_name(), ".__format__"));
    if (style.type != 0 && style.type != 's')
      run_.refuse(cat("Unknown format code '", style.type, "' for object of type 'str'"));
    MarkedText text = *value.marked();
    if (style.precision >= 0)
      text = text.part(0, byte_of_character(text.view(), static_cast<std::size_t>(style.precision)));
    if (style.align == '=') style.align = '<';
    return aligned(run_, text, style, '<');
  }

  Run& run_;
  const Arguments& values_;
  std::size_t next_ = 0;
};

}  // namespace
}  // namespace braces

MarkedText brace_format(Run& run, const MarkedText& pattern, const Arguments& values) {
  return braces::Formatter(run, values).format(pattern);
}

}  // namespace kvtide::jinja
