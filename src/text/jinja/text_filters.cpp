#include <algorithm>

#include "base/text.h"
#include "text/jinja/characters.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/format.h"
#include "text/jinja/letter_methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/spaces.h"
#include "text/jinja/text_parts.h"
#include "text/jinja/value_text.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace text_filter {
namespace {

template <std::string (*changed)(std::string_view)>
Value changed_letters(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "this filter", given, {});
  const MarkedText text = printed(run, self);
  return run.made(MarkedText::made_from(text, changed(text.view())));
}

// Words begin behind white space, '-' and opening brackets.
std::string titled(std::string_view text) {
  std::string out;
  const auto separates = [](char32_t c) {
    return is_python_space(c) ||
           (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  };
  bool within = false;
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const std::string_view one = text.substr(at, utf8_length(text[at]));
    const bool separator = separates(utf8_at(text, at));
    out += separator ? std::string(one) : within ? lowercased(one) : uppercased(one);
    within = !separator;
  }
  return out;
}

Value trim(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "trim", given, {"chars"});
  const bool has_chars = args.has(0) && !args[0].is_none();
  const MarkedText chars = has_chars ? args.text(0) : MarkedText();
  return run.made(stripped(printed(run, self), has_chars ? &chars.bytes : nullptr, true, true));
}

Value replace(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "replace", given, {"old", "new", "count"});
  const std::int64_t most = args.has(2) && !args[2].is_none() ? args.whole(2) : -1;
  return run.made(replaced(run, printed(run, self), printed(run, args[0]), printed(run, args[1]), most));
}

Value center(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "center", given, {"width"});
  Arguments width;
  width.positional.push_back(args.value_or(0, Value(std::int64_t{80})));
  return find_letter_method("center")(run, Value(printed(run, self)), width);
}

Value format(Run& run, const Value& self, Arguments& given) {
  if (!given.positional.empty() && !given.named.empty())
    run.refuse("format() takes values, or values with names, not both");
  Value values = Value::list(given.positional, Sequence::Form::tuple);
  if (!given.named.empty()) {
    auto named = std::make_shared<Mapping>();
    for (auto& [name, value] : given.named) named->set(Value::text(name), value);
    values = Value::mapping(std::move(named));
  }
  return run.made(percent_format(run, printed(run, self), values));
}

Value string(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "string", given, {});
  return self.marked() != nullptr ? self : run.made(printed(run, self));
}

Value safe(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "safe", given, {});
  MarkedText text = printed(run, self);
  text.escaped = true;
  return run.made(std::move(text));
}

Value escape(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "escape", given, {});
  return run.made(html_escaped(run, self));
}

Value force_escape(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "forceescape", given, {});
  MarkedText text = printed(run, self);
  text.escaped = false;
  return run.made(html_escaped(run, Value(std::move(text))));
}

Value indent(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "indent", given, {"width", "first", "blank"});
  run.refuse_undefined(self);
  if (self.marked() == nullptr) run.refuse(cat("indent: expected str, got ", self.type_name()));
  MarkedText by;
  if (args.has(0) && args[0].marked() != nullptr) {
    by = *args[0].marked();
  } else {
    const std::int64_t width = std::clamp<std::int64_t>(args.whole(0, 4), 0, 1 << 20);
    by = MarkedText(std::string(static_cast<std::size_t>(width), ' '));
  }
  MarkedText text = *self.marked();
  text.append("\n");
  MarkedText out;
  if (args.flag(1, false)) out.append(by);
  bool is_first = true;
  for (const Line& line : lines_of(text.view())) {
    if (!is_first) {
      out.append("\n");
      run.charge(by.size());
      if (args.flag(2, false) || line.end > line.begin) out.append(by);
    }
    out.append(text, line.begin, line.end);
    is_first = false;
  }
  return run.made(std::move(out));
}

Value truncate(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "truncate", given, {"length", "killwords", "end", "leeway"});
  const MarkedText text = printed(run, self), end = args.text(2, "...");
  const std::int64_t length = args.whole(0, 255);
  const std::int64_t leeway = args.has(3) && !args[3].is_none() ? args.whole(3) : 5;
  if (static_cast<std::int64_t>(character_count(text.view())) <= length + leeway) return run.made(text);
  const std::int64_t left = length - static_cast<std::int64_t>(character_count(end.view()));
  if (left < 0) run.refuse(cat("truncate: length ", length, " is less than that of its end"));
  MarkedText out = text.part(0, byte_of_character(text.view(), static_cast<std::size_t>(left)));
  if (!args.flag(1, false)) {
    const std::size_t space = out.view().rfind(' ');
    if (space != std::string_view::npos) out = out.part(0, space);
  }
  out.append(end);
  return run.made(std::move(out));
}

Value wordcount(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "wordcount", given, {});
  const MarkedText text = printed(run, self);
  std::int64_t words = 0;
  bool within = false;
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text.bytes[at])) {
    const bool is_word = is_word_character(utf8_at(text.view(), at));
    if (is_word && !within) ++words;
    within = is_word;
  }
  return Value(words);
}

Value urlencode(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "urlencode", given, {});
  const MarkedText text = printed(run, self);
  std::string out;
  for (const char c : text.bytes) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    const auto byte = static_cast<unsigned char>(c);
    if (plain)
      out += c;
    else
      out += {'%', "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15]};
  }
  return run.made(MarkedText::made_from(text, std::move(out)));
}

constexpr NamedNative kFilters[] = {
    {"capitalize", changed_letters<capitalized>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"lower", changed_letters<lowercased>},
    {"replace", replace},
    {"safe", safe},
    {"string", string},
    {"title", changed_letters<titled>},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", changed_letters<uppercased>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
};

}  // namespace
}  // namespace text_filter

std::span<const NamedNative> text_filters() { return text_filter::kFilters; }

}  // namespace kvtide::jinja
