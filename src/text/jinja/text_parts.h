// text_parts.h: where a text is cut: at separators, white space and line ends, as Python's str cuts it.
//
// Thread rules: free functions from any thread. Texts are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/marked_text.h"
#include "text/jinja/run.h"

namespace kvtide::jinja {

// Without the characters of `chars` at its ends; nullptr: without white space.
MarkedText stripped(const MarkedText& text, const std::string* chars, bool at_start, bool at_end);
// At most `most` cuts, counted from the end when asked; negative: all.
std::vector<ByteRange> split_at(std::string_view text, std::string_view by, std::int64_t most, bool from_end);
std::vector<ByteRange> split_at_spaces(std::string_view text, std::int64_t most, bool from_end);

struct Line {
  std::size_t begin = 0, end = 0, next = 0;  // `next`: behind its line end
};
std::vector<Line> lines_of(std::string_view text);

// At most `most` times; negative: everywhere.
MarkedText replaced(Run& run, const MarkedText& text, const MarkedText& old, const MarkedText& by,
                    std::int64_t most);

}  // namespace kvtide::jinja
