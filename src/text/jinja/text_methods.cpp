// The methods of texts: searching, cutting, joining. What changes letters is in letter_methods.cpp.
#include <algorithm>

#include "base/text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/characters.h"
#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/letter_methods.h"
#include "text/jinja/spaces.h"
#include "text/jinja/text_parts.h"
#include "text/jinja/value_text.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace text_methods {
namespace {

const MarkedText& text_of(const Value& self) { return *self.marked(); }

// What of a text strip() leaves: white space goes, or the characters of the argument.
template <bool at_start, bool at_end>
Value strip(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "strip", given, {"chars"});
  const MarkedText& text = text_of(self);
  if (args.has(0) && !args[0].is_none()) {
    const MarkedText chars = args.text(0);
    return run.made(stripped(text, &chars.bytes, at_start, at_end));
  }
  return run.made(stripped(text, nullptr, at_start, at_end));
}

// The bytes of a text that [start, end) of its characters covers; nullopt: start lies behind the end.
std::optional<ByteRange> window(const Bound& args, std::string_view text, std::size_t first_argument) {
  const auto placed = [&](std::size_t i, bool is_end) -> std::int64_t {
    if (!args.has(i) || args[i].is_none())
      return is_end ? static_cast<std::int64_t>(character_count(text)) : 0;
    const std::int64_t at = args.whole(i), size = static_cast<std::int64_t>(character_count(text));
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : is_end ? std::min(at, size) : at;
  };
  const std::int64_t begin = placed(first_argument, false), end = placed(first_argument + 1, true);
  if (begin > end) return std::nullopt;
  return ByteRange{byte_of_character(text, static_cast<std::size_t>(begin)),
                   byte_of_character(text, static_cast<std::size_t>(end))};
}

enum class Where { start, end };
template <Where where>
Value touches(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, where == Where::start ? "startswith" : "endswith", given, {"prefix", "start", "end"});
  const std::string_view all = text_of(self).view();
  const auto range = window(args, all, 1);
  if (!range) return Value(false);
  const std::string_view part = all.substr(range->begin, range->end - range->begin);
  const auto fits = [&](const Value& side) {
    const MarkedText* text = side.marked();
    if (text == nullptr) {
      run.refuse_undefined(side);
      run.refuse(cat(where == Where::start ? "startswith" : "endswith",
                     " first arg must be str or a tuple of str, not ", side.type_name()));
    }
    return where == Where::start ? part.starts_with(text->view()) : part.ends_with(text->view());
  };
  if (const Sequence* sides = args[0].sequence(Sequence::Form::tuple))
    return Value(std::any_of(sides->items.begin(), sides->items.end(), fits));
  return Value(fits(args[0]));
}

template <bool from_end, bool must_be_there>
Value find(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "find", given, {"sub", "start", "end"});
  const std::string_view all = text_of(self).view();
  const MarkedText part = args.text(0);
  run.step(1 + all.size() / 64);
  const auto range = window(args, all, 1);
  if (range) {
    const std::string_view within = all.substr(range->begin, range->end - range->begin);
    const std::size_t at = from_end ? within.rfind(part.view()) : within.find(part.view());
    if (at != within.npos) return Value::count(character_count(all.substr(0, range->begin + at)));
  }
  if (must_be_there) run.refuse("substring not found");
  return Value(std::int64_t{-1});
}

Value count(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "count", given, {"sub", "start", "end"});
  const std::string_view all = text_of(self).view();
  const MarkedText part = args.text(0);
  run.step(1 + all.size() / 64);
  const auto range = window(args, all, 1);
  if (!range) return Value(std::int64_t{0});
  const std::string_view within = all.substr(range->begin, range->end - range->begin);
  if (part.empty()) return Value::count(character_count(within) + 1);
  std::size_t found = 0;
  for (std::size_t at = within.find(part.view()); at != within.npos;
       at = within.find(part.view(), at + part.size()))
    ++found;
  return Value::count(found);
}

Value replace(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "replace", given, {"old", "new", "count"});
  return run.made(replaced(run, text_of(self), args.text(0), args.text(1), args.whole(2, -1)));
}

template <bool from_end>
Value split(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, from_end ? "rsplit" : "split", given, {"sep", "maxsplit"});
  const std::int64_t most = args.whole(1, -1);
  const MarkedText& text = text_of(self);
  run.step(1 + text.size() / 64);
  const bool by_space = !args.has(0) || args[0].is_none();
  const MarkedText by = by_space ? MarkedText() : args.text(0);
  if (!by_space && by.empty()) run.refuse("empty separator");
  std::vector<Value> out;
  const auto parts = by_space ? split_at_spaces(text.view(), most, from_end)
                              : split_at(text.view(), by.view(), most, from_end);
  for (const ByteRange& part : parts) out.push_back(run.made(text.part(part.begin, part.end)));
  return run.made(std::move(out));
}

Value splitlines(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "splitlines", given, {"keepends"});
  const MarkedText& text = text_of(self);
  std::vector<Value> out;
  for (const Line& line : lines_of(text.view()))
    out.push_back(run.made(text.part(line.begin, args.flag(0, false) ? line.next : line.end)));
  return run.made(std::move(out));
}

template <bool from_end>
Value partition(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "partition", given, {"sep"});
  const MarkedText& text = text_of(self);
  const MarkedText by = args.text(0);
  if (by.empty()) run.refuse("empty separator");
  const std::size_t at = from_end ? text.view().rfind(by.view()) : text.view().find(by.view());
  if (at == std::string_view::npos) {
    const Value none = Value::text("");
    return from_end ? run.made({none, none, self}, Sequence::Form::tuple)
                    : run.made({self, none, none}, Sequence::Form::tuple);
  }
  return run.made({run.made(text.part(0, at)), run.made(text.part(at, at + by.size())),
                   run.made(text.part(at + by.size(), text.size()))},
                  Sequence::Form::tuple);
}

Value join(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "join", given, {"iterable"});
  MarkedText out;
  std::size_t i = 0;
  for (const Value& item : items_of(run, args[0])) {
    if (item.marked() == nullptr) {
      run.refuse_undefined(item);
      run.refuse(cat("sequence item ", i, ": expected str instance, ", item.type_name(), " found"));
    }
    run.charge(item.marked()->size() + text_of(self).size());
    if (i++ > 0) out.append(text_of(self));
    out.append(*item.marked());
  }
  return run.made(std::move(out));
}

template <bool at_start>
Value removed(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, at_start ? "removeprefix" : "removesuffix", given, {"part"});
  const MarkedText& text = text_of(self);
  const MarkedText part = args.text(0);
  const bool fits = at_start ? text.view().starts_with(part.view()) : text.view().ends_with(part.view());
  if (!fits) return self;
  return run.made(at_start ? text.part(part.size(), text.size()) : text.part(0, text.size() - part.size()));
}

Value format(Run& run, const Value& self, Arguments& given) {
  return run.made(brace_format(run, text_of(self), given));
}

constexpr NamedNative kMethods[] = {
    {"count", count},
    {"endswith", touches<Where::end>},
    {"find", find<false, false>},
    {"format", format},
    {"index", find<false, true>},
    {"join", join},
    {"lstrip", strip<true, false>},
    {"partition", partition<false>},
    {"removeprefix", removed<true>},
    {"removesuffix", removed<false>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", touches<Where::start>},
    {"strip", strip<true, true>},
};

}  // namespace
}  // namespace text_methods

Native find_text_method(std::string_view name) {
  for (const NamedNative& method : text_methods::kMethods)
    if (method.name == name) return method.function;
  return find_letter_method(name);
}

}  // namespace kvtide::jinja
