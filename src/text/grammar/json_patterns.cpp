#include "text/grammar/json_patterns.h"

#include <algorithm>
#include <string>

#include "base/json/json_value.h"

namespace kvtide::grammar {
namespace {

constexpr int kMostIndent = 20, kMostDigits = 15;

Pattern digit(char low, char high) {
  return Pattern::set({{static_cast<char32_t>(low), static_cast<char32_t>(high)}});
}
Pattern digits(int least, int most) { return Pattern::repeat(digit('0', '9'), least, most); }

// Numbers of as many digits as `low` and `high` have, from one to the other.
Pattern same_length(std::string_view low, std::string_view high) {
  if (low.empty()) return {};
  if (low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos)
    return digits(static_cast<int>(low.size()), static_cast<int>(low.size()));
  if (low[0] == high[0])
    return Pattern::sequence({Pattern::text(low.substr(0, 1)), same_length(low.substr(1), high.substr(1))});
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  const auto count = static_cast<int>(low_rest.size());
  std::vector<Pattern> ways = {
      Pattern::sequence(
          {Pattern::text(low.substr(0, 1)), same_length(low_rest, std::string(low_rest.size(), '9'))}),
      Pattern::sequence(
          {Pattern::text(high.substr(0, 1)), same_length(std::string(high_rest.size(), '0'), high_rest)})};
  if (high[0] - low[0] > 1)
    ways.push_back(Pattern::sequence(
        {digit(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)), digits(count, count)}));
  return Pattern::choice(std::move(ways));
}

// 0 <= low <= high.
Pattern natural_between(std::uint64_t low, std::uint64_t high) {
  std::vector<Pattern> ways;
  const std::string last = std::to_string(high);
  for (std::string from = std::to_string(low); from.size() <= last.size();
       from = "1" + std::string(from.size(), '0')) {
    const std::string to = from.size() == last.size() ? last : std::string(from.size(), '9');
    ways.push_back(same_length(from, to));
  }
  return Pattern::choice(std::move(ways));
}

}  // namespace

Pattern json_space() {
  return Pattern::maybe(Pattern::choice(
      {Pattern::text(" "),
       Pattern::sequence({Pattern::text("\n"), Pattern::repeat(Pattern::text(" "), 0, kMostIndent)})}));
}

Pattern json_character() {
  const auto hex = [] { return Pattern::set({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}); };
  const Pattern code = Pattern::choice(
      {Pattern::sequence(
           {Pattern::set({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}), hex(), hex(), hex()}),
       Pattern::sequence({Pattern::set({{'d', 'd'}, {'D', 'D'}}), digit('0', '7'), hex(), hex()})});
  return Pattern::choice(
      {Pattern::all_but({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}, {0x7f, 0x7f}}),
       Pattern::sequence(
           {Pattern::text("\\"), Pattern::choice({Pattern::set({{'"', '"'},
                                                                {'\\', '\\'},
                                                                {'/', '/'},
                                                                {'b', 'b'},
                                                                {'f', 'f'},
                                                                {'n', 'n'},
                                                                {'r', 'r'},
                                                                {'t', 't'}}),
                                                  Pattern::sequence({Pattern::text("u"), code})})})});
}

Pattern json_text_of(int least, int most) {
  return Pattern::sequence(
      {Pattern::text("\""), Pattern::repeat(json_character(), least, most), Pattern::text("\"")});
}

Pattern json_integer() {
  return Pattern::sequence(
      {Pattern::maybe(Pattern::text("-")),
       Pattern::choice(
           {Pattern::text("0"), Pattern::sequence({digit('1', '9'), digits(0, kMostDigits - 1)})})});
}

Pattern json_number() {
  const Pattern power =
      Pattern::sequence({Pattern::set({{'e', 'e'}, {'E', 'E'}}),
                         Pattern::maybe(Pattern::set({{'+', '+'}, {'-', '-'}})), digits(1, 2)});
  return Pattern::sequence({json_integer(),
                            Pattern::maybe(Pattern::sequence({Pattern::text("."), digits(1, kMostDigits)})),
                            Pattern::maybe(power)});
}

Pattern json_integer_between(std::optional<std::int64_t> low, std::optional<std::int64_t> high) {
  constexpr std::int64_t kMost = 999'999'999'999'999;  // as many digits as json_integer
  const std::int64_t from = std::max(low.value_or(-kMost), -kMost),
                     to = std::min(high.value_or(kMost), kMost);
  std::vector<Pattern> ways;
  if (from < 0 && from <= to)
    ways.push_back(
        Pattern::sequence({Pattern::text("-"), natural_between(static_cast<std::uint64_t>(to < 0 ? -to : 1),
                                                               static_cast<std::uint64_t>(-from))}));
  if (to >= 0 && from <= to)
    ways.push_back(natural_between(static_cast<std::uint64_t>(std::max<std::int64_t>(from, 0)),
                                   static_cast<std::uint64_t>(to)));
  return Pattern::choice(std::move(ways));
}

Pattern json_literal_text(std::string_view text) { return Pattern::text(JsonValue::text_of(text)); }

Pattern json_items(char open, const Pattern& item, int least, int most, char close) {
  const Pattern begin = Pattern::sequence({Pattern::text(std::string(1, open)), json_space()});
  const Pattern end = Pattern::text(std::string(1, close));
  if (most == 0) return Pattern::sequence({begin, end});
  const Pattern more = Pattern::sequence({Pattern::text(","), json_space(), item, json_space()});
  Pattern items = Pattern::sequence(
      {item, json_space(),
       Pattern::repeat(more, std::max(least - 1, 0), most == kWithoutEnd ? most : most - 1)});
  if (least == 0) items = Pattern::maybe(std::move(items));
  return Pattern::sequence({begin, std::move(items), end});
}

AnyJson add_any_json(Grammar& grammar) {
  const AnyJson out{grammar.rule(), grammar.rule()};
  const int text = grammar.rule();
  grammar.define(text, json_text_of(0, kWithoutEnd));
  const Pattern member = Pattern::sequence(
      {Pattern::rule(text), json_space(), Pattern::text(":"), json_space(), Pattern::rule(out.value)});
  grammar.define(out.object, json_items('{', member, 0, kWithoutEnd, '}'));
  grammar.define(out.value, Pattern::choice({Pattern::rule(out.object),
                                             json_items('[', Pattern::rule(out.value), 0, kWithoutEnd, ']'),
                                             Pattern::rule(text), json_number(), Pattern::text("true"),
                                             Pattern::text("false"), Pattern::text("null")}));
  return out;
}

}  // namespace kvtide::grammar
