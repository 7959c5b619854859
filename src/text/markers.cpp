#include "text/markers.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {

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

}  // namespace kvtide
