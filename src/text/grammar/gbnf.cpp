#include "text/grammar/gbnf.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>

#include "base/refuse.h"
#include "base/text.h"
#include "text/utf8.h"

namespace kvtide::grammar {
namespace {

constexpr int kMostGroups = 64, kMostTimes = 4096;
constexpr char32_t kLastEscaped = 0x10ffff;

class GbnfReader {
 public:
  GbnfReader(std::string_view text, std::string_view place) : text_(text), place_(place) {
    if (find_invalid_utf8(text)) refuse(cat(place_, ": is not valid UTF-8"));
  }

  Grammar read() {
    rule_of("root");
    for (space(true); at_ < text_.size(); space(true)) {
      const std::string name = word();
      space(false);
      if (name.empty() || !take("::=")) wrong("a rule is name ::= what it stands for");
      const int rule = rule_of(name);
      if (rules_.at(name).second) wrong(cat("there are two rules ", quoted(name)));
      rules_.at(name).second = true;
      space(true);
      out_.define(rule, alternatives(0));
    }
    for (const auto& [name, rule] : rules_)
      if (!rule.second) refuse(cat(place_, ": there is no rule ", quoted(name)));
    return std::move(out_);
  }

 private:
  [[noreturn]] void wrong(const std::string& why) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    refuse(cat(place_, ", line ", line, ": ", why));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  void space(bool with_lines) {
    for (;; ++at_) {
      if (peek() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      const char c = peek();
      if (c != ' ' && c != '\t' && !(with_lines && (c == '\n' || c == '\r'))) return;
    }
  }
  std::string word() {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const std::size_t first = at_;
    while (at_ < text_.size() && kLetters.find(text_[at_]) != kLetters.npos) ++at_;
    return std::string(text_.substr(first, at_ - first));
  }
  int rule_of(const std::string& name) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second.first;
    return rules_.emplace(name, std::pair(out_.rule(), false)).first->second.first;
  }

  Pattern alternatives(int depth) {
    if (depth > kMostGroups) wrong("groups lie too deep in each other");
    std::vector<Pattern> ways = {sequence(depth)};
    while (take("|")) {
      space(true);
      ways.push_back(sequence(depth));
    }
    return Pattern::choice(std::move(ways));
  }

  Pattern sequence(int depth) {
    std::vector<Pattern> parts;
    for (;;) {
      std::optional<Pattern> part = one(depth);
      if (!part) break;
      parts.push_back(repeated(std::move(*part)));
      space(depth > 0);
    }
    return Pattern::sequence(std::move(parts));
  }

  std::optional<Pattern> one(int depth) {
    const char c = peek();
    if (take("\"")) return text();
    if (take("[")) return set();
    if (take(".")) return Pattern::all_but({});
    if (take("(")) {
      space(true);
      Pattern out = alternatives(depth + 1);
      space(true);
      if (!take(")")) wrong("a group must end with )");
      return out;
    }
    const std::size_t before = at_;
    const std::string name = word();
    if (name.empty()) {
      if (c != '\0' && c != '|' && c != ')' && c != '\n' && c != '\r')
        wrong(cat("nothing begins with ", quoted(std::string(1, c))));
      return std::nullopt;
    }
    space(false);
    if (text_.substr(at_).starts_with("::=")) {  // the next rule, behind a line end within a group
      at_ = before;
      return std::nullopt;
    }
    return Pattern::rule(rule_of(name));
  }

  Pattern repeated(Pattern part) {
    for (;;) {
      if (take("*"))
        part = Pattern::repeat(std::move(part), 0, kWithoutEnd);
      else if (take("+"))
        part = Pattern::repeat(std::move(part), 1, kWithoutEnd);
      else if (take("?"))
        part = Pattern::maybe(std::move(part));
      else if (take("{"))
        part = counted(std::move(part));
      else
        return part;
    }
  }

  int count() {
    int out = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
    if (error != std::errc() || out < 0 || out > kMostTimes)
      wrong(cat("a number of times must be from 0 to ", kMostTimes));
    at_ = static_cast<std::size_t>(end - text_.data());
    return out;
  }
  Pattern counted(Pattern part) {
    space(false);
    const int least = peek() == ',' ? 0 : count();
    int most = least;
    space(false);
    if (take(",")) {
      space(false);
      most = peek() == '}' ? kWithoutEnd : count();
      space(false);
    }
    if (!take("}") || (most != kWithoutEnd && most < least)) wrong("a number of times is {m}, {m,} or {m,n}");
    return Pattern::repeat(std::move(part), least, most);
  }

  char32_t character() {
    if (at_ >= text_.size() || peek() == '\n') wrong("a text or a set does not end");
    if (!take("\\")) {
      const char32_t c = utf8_at(text_, at_);
      at_ += utf8_length(text_[at_]);
      return c;
    }
    const char escaped = peek();
    ++at_;
    switch (escaped) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      default:
        break;
    }
    constexpr std::string_view kThemselves = "\"\\[]-^/.";
    if (escaped == '\0' || kThemselves.find(escaped) == kThemselves.npos)
      wrong(cat("there is no escape ", quoted(std::string(1, escaped))));
    return static_cast<char32_t>(escaped);
  }
  char32_t hex(std::size_t digits) {
    std::uint32_t out = 0;
    const std::string_view text = text_.substr(std::min(at_, text_.size()), digits);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, 16);
    if (error != std::errc() || end != text.data() + digits || out > kLastEscaped ||
        (out >= 0xd800 && out <= 0xdfff))
      wrong("an escape is no character");
    at_ += digits;
    return out;
  }
  Pattern text() {
    std::string bytes;
    while (!take("\"")) append_utf8(bytes, character());
    return Pattern::text(bytes);
  }
  Pattern set() {
    const bool but = take("^");
    std::vector<CharacterRange> ranges;
    while (!take("]")) {
      const char32_t low = character();
      char32_t high = low;
      if (text_.substr(at_).starts_with("-") && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        high = character();
      }
      if (high < low) wrong("a range of characters must begin with the lower one");
      ranges.emplace_back(low, high);
    }
    return but ? Pattern::all_but(std::move(ranges)) : Pattern::set(std::move(ranges));
  }

  std::string_view text_, place_;
  std::size_t at_ = 0;
  Grammar out_;
  std::map<std::string, std::pair<int, bool>> rules_;  // number, and whether it is defined
};

}  // namespace

Grammar grammar_of_gbnf(std::string_view text, std::string_view place) {
  return GbnfReader(text, place).read();
}

}  // namespace kvtide::grammar
