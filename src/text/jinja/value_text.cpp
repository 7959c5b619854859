#include "text/jinja/value_text.h"

#include <charconv>
#include <cmath>

#include "base/text.h"
#include "text/jinja/object.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace value_text {
namespace {

void append_hex(std::string& out, char32_t c, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[c >> shift & 15];
}

void append_represented(Run& run, MarkedText& out, const Value& value);

void append_items(Run& run, MarkedText& out, const std::vector<Value>& items, std::string_view open,
                  std::string_view close) {
  out.append(open);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_represented(run, out, items[i]);
  }
  out.append(close);
}

void append_sequence(Run& run, MarkedText& out, const Sequence& all) {
  switch (all.form) {
    case Sequence::Form::list:
      return append_items(run, out, all.items, "[", "]");
    case Sequence::Form::tuple:
      return append_items(run, out, all.items, "(", all.items.size() == 1 ? ",)" : ")");
    case Sequence::Form::keys:
      return append_items(run, out, all.items, "dict_keys([", "])");
    case Sequence::Form::values:
      return append_items(run, out, all.items, "dict_values([", "])");
    case Sequence::Form::items:
      return append_items(run, out, all.items, "dict_items([", "])");
    case Sequence::Form::range:
      return out.append(all.label);
    case Sequence::Form::generator:
      return out.append("<generator object>");
  }
}

void append_represented(Run& run, MarkedText& out, const Value& value) {
  const Run::Deeper deeper(run);
  run.step();
  if (const MarkedText* text = value.marked()) {
    run.charge(text->size());
    out.append(MarkedText::made_from(*text, quoted_as_python(text->view())));
  } else if (const Sequence* all = value.sequence()) {
    append_sequence(run, out, *all);
  } else if (const Mapping* entries = value.mapping()) {
    out.append("{");
    bool first = true;
    for (const auto& [key, item] : entries->items()) {
      if (!std::exchange(first, false)) out.append(", ");
      append_represented(run, out, key);
      out.append(": ");
      append_represented(run, out, item);
    }
    out.append("}");
  } else if (value.is_undefined()) {
    out.append("Undefined");
  } else {
    out.append(printed(run, value));
  }
}

}  // namespace
}  // namespace value_text

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[40];
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto form = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, value, form).ptr);
  if (plain && text.find('.') == text.npos) text += ".0";
  return text;
}

std::string quoted_as_python(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const char32_t c = utf8_at(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(at, utf8_length(text[at]));
    } else {
      const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
      out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
      value_text::append_hex(out, c, digits);
    }
  }
  return out + quote;
}

MarkedText represented(Run& run, const Value& value) {
  MarkedText out;
  value_text::append_represented(run, out, value);
  return out;
}

MarkedText printed(Run& run, const Value& value) {
  if (const MarkedText* text = value.marked()) return *text;
  if (value.is_undefined()) {
    return {};
  }
  if (value.is_none()) return "None";
  if (const bool* flag = value.boolean()) return *flag ? "True" : "False";
  if (const std::int64_t* whole = value.integer()) return cat(*whole);
  if (const double* real = value.real()) return real_text(*real);
  if (Object* object = value.object()) return object->printed(run);
  return represented(run, value);
}

}  // namespace kvtide::jinja
