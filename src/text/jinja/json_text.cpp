// What the filter tojson prints: json.dumps of Python.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "text/jinja/compare.h"
#include "text/jinja/value_text.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace json_text {
namespace {

class Writer {
 public:
  Writer(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  void write(const Value& value, std::size_t level) {
    const Run::Deeper deeper(run_);
    run_.step();
    if (const MarkedText* text = value.marked()) return write_text(*text);
    if (const Mapping* all = value.mapping()) return write_mapping(*all, level);
    if (value.is_list_or_tuple()) return write_list(*value.sequence(), level);
    if (value.is_none()) return out_.append("null");
    if (const bool* flag = value.boolean()) return out_.append(*flag ? "true" : "false");
    if (const std::int64_t* whole = value.integer()) return out_.append(cat(*whole));
    if (const double* real = value.real()) return out_.append(number(*real));
    run_.refuse(cat("Object of type ", value.type_name(), " is not JSON serializable",
                    value.is_undefined() ? cat(" (", value.missing()->why, ")") : ""));
  }
  MarkedText take() { return std::move(out_); }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return real_text(value);
  }

  void escape(std::string& out, char32_t c, std::string_view bytes) const {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const std::size_t which = c < 0x80 ? kShort.find(static_cast<char>(c)) : kShort.npos;
    const auto unit = [&out](unsigned value) {
      out += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[value >> shift & 15];
    };
    if (which != kShort.npos) {
      out += '\\';
      out += kLetters[which];
    } else if (c < 0x20 || (style_.ascii && c > 0x7e && c < 0x10000)) {
      unit(static_cast<unsigned>(c));
    } else if (style_.ascii && c >= 0x10000) {
      unit(0xd800 + static_cast<unsigned>((c - 0x10000) >> 10));
      unit(0xdc00 + static_cast<unsigned>((c - 0x10000) & 0x3ff));
    } else {
      out += bytes;
    }
  }

  void write_text(const MarkedText& text) {
    run_.charge(text.size());
    std::string out = "\"";
    const std::string_view bytes = text.view();
    for (std::size_t at = 0; at < bytes.size(); at += utf8_length(bytes[at]))
      escape(out, utf8_at(bytes, at), bytes.substr(at, utf8_length(bytes[at])));
    out += '"';
    out_.append(MarkedText::made_from(text, std::move(out)));
  }

  void new_line(std::size_t level) {
    if (!style_.indent) return;
    out_.append("\n");
    run_.charge(style_.indent->size() * level);
    for (std::size_t i = 0; i < level; ++i) out_.append(*style_.indent);
  }

  void write_list(const Sequence& all, std::size_t level) {
    if (all.items.empty()) return out_.append("[]");
    out_.append("[");
    for (std::size_t i = 0; i < all.items.size(); ++i) {
      if (i > 0) out_.append(style_.between_items);
      new_line(level + 1);
      write(all.items[i], level + 1);
    }
    new_line(level);
    out_.append("]");
  }

  void write_key(const Value& key) {
    if (const MarkedText* text = key.marked()) return write_text(*text);
    if (key.is_none()) return out_.append("\"null\"");
    if (const bool* flag = key.boolean()) return out_.append(*flag ? "\"true\"" : "\"false\"");
    if (key.number())
      return out_.append(cat('"', key.real() != nullptr ? number(*key.real()) : cat(*key.whole()), '"'));
    run_.refuse(cat("keys must be str, int, float, bool or None, not ", key.type_name()));
  }

  void write_mapping(const Mapping& all, std::size_t level) {
    if (all.size() == 0) return out_.append("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : all.items()) items.push_back(&item);
    if (style_.sorted)
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return is_less(run_, a->first, b->first); });
    out_.append("{");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.between_items);
      new_line(level + 1);
      write_key(items[i]->first);
      out_.append(style_.behind_key);
      write(items[i]->second, level + 1);
    }
    new_line(level);
    out_.append("}");
  }

  Run& run_;
  const JsonStyle& style_;
  MarkedText out_;
};

}  // namespace
}  // namespace json_text

MarkedText json_of(Run& run, const Value& value, const JsonStyle& style) {
  json_text::Writer writer(run, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace kvtide::jinja
