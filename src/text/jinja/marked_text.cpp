#include "text/jinja/marked_text.h"

#include <algorithm>

namespace kvtide::jinja {

MarkedText MarkedText::all_given(std::string text) {
  MarkedText out(std::move(text));
  if (!out.bytes.empty()) out.given.push_back({0, out.size()});
  return out;
}

MarkedText MarkedText::made_from(const MarkedText& source, std::string text) {
  MarkedText out = source.has_given() ? all_given(std::move(text)) : MarkedText(std::move(text));
  out.escaped = source.escaped;
  return out;
}

void MarkedText::append(const MarkedText& text, std::size_t begin, std::size_t end) {
  const std::size_t at = bytes.size();
  bytes.append(text.bytes, begin, end - begin);
  const auto first =
      std::lower_bound(text.given.begin(), text.given.end(), begin,
                       [](const ByteRange& range, std::size_t from) { return range.end <= from; });
  for (auto range = first; range != text.given.end() && range->begin < end; ++range) {
    const ByteRange moved{at + std::max(range->begin, begin) - begin, at + std::min(range->end, end) - begin};
    if (!given.empty() && given.back().end == moved.begin)
      given.back().end = moved.end;
    else
      given.push_back(moved);
  }
}

MarkedText MarkedText::part(std::size_t begin, std::size_t end) const {
  MarkedText out;
  if (begin < end) out.append(*this, begin, end);
  out.escaped = escaped;
  return out;
}

}  // namespace kvtide::jinja
