#include "text/markers.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/normalize.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

bool is_word(std::string_view text, std::size_t at) { return is_word_character(utf8_at(text, at)); }
bool is_space(std::string_view text, std::size_t at) { return (char_class(utf8_at(text, at)) & kSpace) != 0; }
std::size_t character_before(std::string_view text, std::size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}
bool stands_alone(std::string_view text, std::size_t first, std::size_t last) {
  return (first == 0 || !is_word(text, character_before(text, first))) &&
         (last == text.size() || !is_word(text, last));
}

}  // namespace

MarkerSet::MarkerSet(std::vector<Marker> markers) : markers_(std::move(markers)) {
  std::erase_if(markers_, [](const Marker& marker) { return marker.text.empty(); });
  for (const Marker& marker : markers_) {
    if (marker.text.size() > kLongest) {
      throw Error(ErrorCode::bad_format,
                  cat("vocabulary: token ", marker.id, " ", quoted(marker.text, 24), " is a marker of ",
                      marker.text.size(), " bytes; the longest allowed is ", kLongest));
    }
  }
  std::sort(markers_.begin(), markers_.end(), [](const Marker& a, const Marker& b) {
    return a.text != b.text ? a.text < b.text : a.id < b.id;
  });
  const auto same = [](const Marker& a, const Marker& b) { return a.text == b.text; };
  markers_.erase(std::unique(markers_.begin(), markers_.end(), same), markers_.end());
  for (std::uint32_t i = 0; i < markers_.size(); ++i) {
    Range& range = ranges_[index(markers_[i].text[0])];
    if (range.first == range.last) range.first = i;
    range.last = i + 1;
  }
}

const Marker* MarkerSet::longest_at(std::string_view text, std::size_t at,
                                    std::size_t markup_end) const noexcept {
  const Marker* best = nullptr;
  auto [first, last] = ranges_[index(text[at])];
  // markers_[first, last) are those whose first `depth` bytes are the text's.
  for (std::size_t depth = 1; first != last; ++depth) {
    const Marker& shortest = markers_[first];
    if (last - first == 1) {  // one candidate is left: compare it at once
      const bool matches = text.substr(at, shortest.text.size()) == shortest.text;
      if (matches && (!shortest.control || at + shortest.text.size() <= markup_end)) best = &shortest;
      break;
    }
    if (shortest.text.size() == depth) {
      if (!shortest.control || at + depth <= markup_end) best = &shortest;
      ++first;
    }
    if (at + depth == text.size()) break;
    const std::size_t byte = index(text[at + depth]);
    const auto begin = markers_.begin();
    const auto below = [&](const Marker& marker, std::size_t value) {
      return index(marker.text[depth]) < value;
    };
    const auto low = std::lower_bound(begin + first, begin + last, byte, below);
    const auto high = std::lower_bound(low, begin + last, byte + 1, below);
    first = static_cast<std::uint32_t>(low - begin);
    last = static_cast<std::uint32_t>(high - begin);
  }
  return best;
}

std::optional<MarkerSet::Match> MarkerSet::match_at(std::string_view text, std::size_t at, std::size_t done,
                                                    std::size_t markup_end) const noexcept {
  if (!may_start(text[at])) return std::nullopt;
  const Marker* marker = longest_at(text, at, markup_end);
  if (marker == nullptr) return std::nullopt;
  Match match{at, at + marker->text.size(), marker->id};
  if (marker->whole_word && !stands_alone(text, match.first, match.last)) return std::nullopt;
  while (marker->takes_space_before && match.first > done &&
         is_space(text, character_before(text, match.first)))
    match.first = character_before(text, match.first);
  while (marker->takes_space_behind && match.last < text.size() && is_space(text, match.last))
    match.last += utf8_length(text[match.last]);
  return match;
}

}  // namespace kvtide
