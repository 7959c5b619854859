#include "text/jinja/letter_methods.h"

#include <algorithm>

#include "base/text.h"
#include "text/jinja/characters.h"
#include "text/jinja/run.h"
#include "text/jinja/spaces.h"
#include "text/normalize.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace letter_methods {
namespace {

template <class Call>
void for_each_character(std::string_view text, Call&& call) {
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) call(utf8_at(text, at));
}

// The whole text has letters of the one case and none of the other.
bool is_all(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool some = false, fits = true;
  for_each_character(text, [&](char32_t c) {
    some |= wanted(c);
    fits &= !other(c);
  });
  return some && fits;
}

std::string titled(std::string_view text) {
  std::string out;
  bool within = false;
  for_each_character(text, [&](char32_t c) {
    std::string one;
    append_utf8(one, c);
    out += within ? lowercased(one) : titlecased_character(c);
    within = is_cased(c);
  });
  return out;
}

std::string swapped(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c) {
    std::string one;
    append_utf8(one, c);
    out += is_upper(c) ? lowercased(one) : is_lower(c) ? uppercased(one) : one;
  });
  return out;
}

template <std::string (*changed)(std::string_view)>
Value changed_letters(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "this method", given, {});
  return run.made(MarkedText::made_from(*self.marked(), changed(self.marked()->view())));
}

template <bool (*holds)(std::string_view)>
Value asked(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "this method", given, {});
  return Value(holds(self.marked()->view()));
}

template <bool (*holds)(char32_t)>
bool all_of(std::string_view text) {
  bool fits = !text.empty();
  for_each_character(text, [&](char32_t c) { fits &= holds(c); });
  return fits;
}

bool is_letter(char32_t c) { return (char_class(c) & kLetter) != 0; }
bool is_number(char32_t c) { return (char_class(c) & kNumber) != 0; }
bool is_letter_or_number(char32_t c) { return is_letter(c) || is_number(c); }
bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}
bool is_title(std::string_view text) {
  bool some = false;
  for_each_character(text, [&](char32_t c) { some |= is_cased(c); });
  return some && titled(text) == text;
}

// Filled up to a width with a character: at the left, at the right, or on both sides.
MarkedText filled(Run& run, const MarkedText& text, std::int64_t width, std::string_view with, bool left,
                  bool right) {
  const std::int64_t missing = width - static_cast<std::int64_t>(character_count(text.view()));
  if (missing <= 0) return text;
  if (missing > (std::int64_t{1} << 32)) run.refuse("the width is too large");
  run.charge(static_cast<std::size_t>(missing) * with.size());
  const std::int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
  MarkedText out;
  for (std::int64_t i = 0; i < before; ++i) out.append(with);
  out.append(text);
  for (std::int64_t i = before; i < missing; ++i) out.append(with);
  return out;
}

template <bool left, bool right>
Value fill(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "this method", given, {"width", "fillchar"});
  const MarkedText with = args.text(1, " ");
  if (character_count(with.view()) != 1) run.refuse("The fill character must be exactly one character long");
  return run.made(filled(run, *self.marked(), args.whole(0), with.view(), left, right));
}

Value zfill(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "zfill", given, {"width"});
  const MarkedText& text = *self.marked();
  const bool has_sign = text.view().starts_with('-') || text.view().starts_with('+');
  MarkedText out = text.part(0, has_sign ? 1 : 0);
  out.append(filled(run, text.part(has_sign ? 1 : 0, text.size()), args.whole(0) - (has_sign ? 1 : 0), "0",
                    true, false));
  return run.made(std::move(out));
}

Value expandtabs(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "expandtabs", given, {"tabsize"});
  const std::int64_t size = std::clamp<std::int64_t>(args.whole(0, 8), 0, 1000);
  std::string out;
  std::int64_t column = 0;
  for_each_character(self.marked()->view(), [&](char32_t c) {
    if (c == '\t') {
      const std::int64_t spaces = size == 0 ? 0 : size - column % size;
      run.charge(static_cast<std::size_t>(spaces));
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
      return;
    }
    append_utf8(out, c);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  });
  return run.made(MarkedText::made_from(*self.marked(), std::move(out)));
}

constexpr NamedNative kMethods[] = {
    {"capitalize", changed_letters<capitalized>},
    {"casefold", changed_letters<lowercased>},
    {"center", fill<true, true>},
    {"expandtabs", expandtabs},
    {"isalnum", asked<all_of<is_letter_or_number>>},
    {"isalpha", asked<all_of<is_letter>>},
    {"isascii", asked<is_ascii>},
    {"isdecimal", asked<all_of<is_number>>},
    {"isdigit", asked<all_of<is_number>>},
    {"islower", asked<is_all_lower>},
    {"isnumeric", asked<all_of<is_number>>},
    {"isspace", asked<all_of<is_python_space>>},
    {"istitle", asked<is_title>},
    {"isupper", asked<is_all_upper>},
    {"ljust", fill<false, true>},
    {"lower", changed_letters<lowercased>},
    {"rjust", fill<true, false>},
    {"swapcase", changed_letters<swapped>},
    {"title", changed_letters<titled>},
    {"upper", changed_letters<uppercased>},
    {"zfill", zfill},
};

}  // namespace
}  // namespace letter_methods

bool is_all_upper(std::string_view text) { return letter_methods::is_all(text, is_upper, is_lower); }
bool is_all_lower(std::string_view text) { return letter_methods::is_all(text, is_lower, is_upper); }

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = utf8_length(text[0]);
  return titlecased_character(utf8_at(text, 0)) + lowercased(text.substr(first));
}

Native find_letter_method(std::string_view name) {
  for (const NamedNative& method : letter_methods::kMethods)
    if (method.name == name) return method.function;
  return nullptr;
}

}  // namespace kvtide::jinja
