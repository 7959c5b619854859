#include "serve/tools/python_call.h"

#include <utility>

#include "base/json/json_value.h"
#include "kvtide/error.h"

namespace kvtide::serve {
namespace python_call {

constexpr int kMostDepth = 32;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<PythonCall> call() {
    PythonCall out;
    out.name = word();
    if (out.name.empty() || !take('(')) return std::nullopt;
    if (out.name == "print") {
      auto inner = call();
      return inner && take(')') ? inner : std::nullopt;
    }
    out.arguments = "{";
    while (!take(')')) {
      const std::string key = word();
      if (key.empty() || !take('=')) return std::nullopt;
      out.arguments += (out.arguments.size() > 1 ? ", " : "") + JsonValue::text_of(key) + ": ";
      if (!value(out.arguments, 0)) return std::nullopt;
      if (!take(',') && peek() != ')') return std::nullopt;
    }
    out.arguments += "}";
    return out;
  }
  std::optional<std::string> literal() {
    std::string out;
    return value(out, 0) ? std::optional(std::move(out)) : std::nullopt;
  }
  bool at_end() { return peek() == '\0'; }

 private:
  char peek() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  std::string word() {
    peek();
    const std::size_t first = at_;
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    while (at_ < text_.size() && kLetters.find(text_[at_]) != kLetters.npos) ++at_;
    return std::string(text_.substr(first, at_ - first));
  }
  bool text(std::string& out) {
    const char quote = text_[at_++];
    std::string raw;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size()) {
        c = text_[++at_];
        c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
      }
      raw += c;
    }
    out += JsonValue::text_of(raw);
    return at_++ < text_.size();
  }
  bool items(std::string& out, char end, bool with_keys, int depth) {
    ++at_;
    out += with_keys ? '{' : '[';
    for (bool first = true; !take(end); first = false) {
      if (!first) out += ", ";
      if (with_keys) {
        if (peek() != '"' && peek() != '\'') return false;
        if (!text(out) || !take(':')) return false;
        out += ": ";
      }
      if (!value(out, depth + 1)) return false;
      if (!take(',') && peek() != end) return false;
    }
    out += with_keys ? '}' : ']';
    return true;
  }
  bool value(std::string& out, int depth) {
    const char c = peek();
    if (depth > kMostDepth) return false;
    if (c == '"' || c == '\'') return text(out);
    if (c == '[' || c == '(') return items(out, c == '[' ? ']' : ')', false, depth);
    if (c == '{') return items(out, '}', true, depth);
    const std::string plain = word();
    for (const auto& [python, json] : {std::pair("True", "true"), {"False", "false"}, {"None", "null"}})
      if (plain == python) {
        out += json;
        return true;
      }
    try {
      if (!JsonValue::parse(plain, "a number").number()) return false;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) throw;
      return false;
    }
    out += plain;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace python_call

std::optional<PythonCall> read_python_call(std::string_view text) {
  python_call::Reader reader(text);
  auto call = reader.call();
  return call && reader.at_end() ? call : std::nullopt;
}

std::optional<std::string> read_python_value(std::string_view text) {
  python_call::Reader reader(text);
  auto value = reader.literal();
  return value && reader.at_end() ? value : std::nullopt;
}

}  // namespace kvtide::serve
