// markers.h: tokens that are cut out of the text before anything else looks at it, such as <|im_start|>.
//
// A control marker counts only in markup (text that the program wrote); a text marker counts everywhere. The
// leftmost match wins, and the longest of those that start there.
// Ownership: refers to texts that the caller keeps alive.
// Thread rules: const members from any thread.
// Invariant: no marker is longer than kLongest, so that a search is linear.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

struct Marker {
  std::string_view text;
  TokenId id = -1;
  bool control = true;
  bool takes_space_before = false, takes_space_behind = false;  // white space beside it belongs to it
  bool whole_word = false;  // counts only where no letter, digit or underscore stands beside it
};

class MarkerSet {
 public:
  static constexpr std::size_t kLongest = 256;  // bytes

  // Of markers with equal text the lowest id stays. Throws Error(bad_format) for one longer than kLongest.
  explicit MarkerSet(std::vector<Marker> markers);

  // The longest marker that starts at text[at]; a control marker has to end at or before markup_end.
  // nullptr: none starts here.
  const Marker* longest_at(std::string_view text, std::size_t at, std::size_t markup_end) const noexcept;

  struct Match {
    std::size_t first, last;  // with the white space that belongs to the marker
    TokenId id;
  };
  // The same with all that a marker asks of what stands beside it. `done`: white space before it is not its
  // own.
  std::optional<Match> match_at(std::string_view text, std::size_t at, std::size_t done,
                                std::size_t markup_end) const noexcept;

  // Whether some marker starts with this byte: lets a scan skip the rest.
  bool may_start(char byte) const noexcept { return ranges_[index(byte)].first != ranges_[index(byte)].last; }

 private:
  struct Range {
    std::uint32_t first = 0, last = 0;
  };
  static std::size_t index(char byte) { return static_cast<unsigned char>(byte); }

  std::vector<Marker> markers_;         // sorted by text
  std::array<Range, 256> ranges_ = {};  // of markers_, by first byte
};

}  // namespace kvtide
