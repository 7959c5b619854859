#include "text/jinja/text_parts.h"

#include <algorithm>

#include "text/jinja/spaces.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace text_parts {
namespace {

bool is_one_of(std::string_view character, std::string_view chars) {
  for (std::size_t at = 0; at < chars.size(); at += utf8_length(chars[at]))
    if (chars.substr(at, utf8_length(chars[at])) == character) return true;
  return false;
}

// The end of a line at `at`, in bytes; 0: there is none.
std::size_t line_end(std::string_view text, std::size_t at) {
  const char32_t c = utf8_at(text, at);
  if (c == '\r') return text.substr(at + 1).starts_with('\n') ? 2 : 1;
  const bool ends =
      (c >= '\n' && c <= '\f') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
  return ends ? utf8_length(text[at]) : 0;
}

}  // namespace
}  // namespace text_parts

MarkedText stripped(const MarkedText& text, const std::string* chars, bool at_start, bool at_end) {
  const std::string_view all = text.view();
  std::size_t begin = 0, end = all.size();
  if (chars == nullptr) {
    if (at_start) begin = leading_spaces(all);
    if (at_end && begin < end) end -= trailing_spaces(all.substr(begin));
    return text.part(begin, end);
  }
  while (at_start && begin < end && text_parts::is_one_of(all.substr(begin, utf8_length(all[begin])), *chars))
    begin += utf8_length(all[begin]);
  while (at_end && begin < end) {
    const std::size_t last = begin + last_character(all.substr(begin, end - begin));
    if (!text_parts::is_one_of(all.substr(last, end - last), *chars)) break;
    end = last;
  }
  return text.part(begin, end);
}

std::vector<ByteRange> split_at(std::string_view text, std::string_view by, std::int64_t most,
                                bool from_end) {
  std::vector<ByteRange> parts;
  std::size_t begin = 0, end = text.size();
  while (most != 0) {
    const std::size_t at = from_end ? text.substr(0, end).rfind(by) : text.find(by, begin);
    if (at == text.npos) break;
    if (from_end) {
      parts.push_back({at + by.size(), end});
      end = at;
    } else {
      parts.push_back({begin, at});
      begin = at + by.size();
    }
    --most;
  }
  parts.push_back({begin, end});
  if (from_end) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<ByteRange> split_at_spaces(std::string_view text, std::int64_t most, bool from_end) {
  // Words first; what lies beyond the last cut stays one part, stripped only on the side of the cut.
  std::vector<ByteRange> words;
  for (std::size_t at = leading_spaces(text); at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && !is_python_space(utf8_at(text, end))) end += utf8_length(text[end]);
    words.push_back({at, end});
    at = end + leading_spaces(text.substr(end));
  }
  if (most < 0 || static_cast<std::size_t>(most) >= words.size()) return words;
  const auto cuts = static_cast<std::size_t>(most);
  if (from_end) {
    words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(cuts) - 1);
    words.front().begin = 0;
  } else {
    words.resize(cuts + 1);
    words.back().end = text.size();
  }
  return words;
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = text_parts::line_end(text, at);
    if (length == 0) {
      at += utf8_length(text[at]);
      continue;
    }
    lines.push_back({begin, at, at + length});
    begin = at += length;
  }
  if (begin < text.size()) lines.push_back({begin, text.size(), text.size()});
  return lines;
}

MarkedText replaced(Run& run, const MarkedText& text, const MarkedText& old, const MarkedText& by,
                    std::int64_t most) {
  MarkedText out;
  std::size_t copied = 0;
  const auto put = [&](std::size_t at) {
    out.append(text, copied, at);
    out.append(by);
    run.charge(by.size() + 24 * by.given.size());
    copied = at + old.size();
  };
  if (old.empty()) {  // between all characters
    for (std::size_t at = 0; at <= text.size() && most != 0; --most) {
      put(at);
      at += at < text.size() ? utf8_length(text.bytes[at]) : 1;
    }
  } else {
    for (std::size_t at = text.view().find(old.view()); at != std::string_view::npos && most != 0; --most) {
      put(at);
      at = text.view().find(old.view(), copied);
    }
  }
  out.append(text, copied, text.size());
  return out;
}

}  // namespace kvtide::jinja
