// suffix_draft.h: guesses how a text goes on from what it said before: the longest end of the text that stood
// in it earlier, and what came behind it there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

inline constexpr std::int64_t kLongestSuffix = 8;  // tokens that are compared

// Up to `most` tokens behind `history`; none when no end of it of `least` tokens stood in it before. Of equally long
// ends the newest counts. A guess that reaches the end of the history goes on with the guess itself. A pure function,
// any thread.
std::vector<TokenId> draft_by_suffix(std::span<const TokenId> history, std::int64_t most,
                                     std::int64_t least = 1);

// How many tokens to guess. A guess costs a part of a token even when it is wrong: texts that do not repeat themselves
// are left alone for longer and longer, and guesses grow where they come true. Counts only, no clock.
class DraftLength {
 public:
  // Of the next pass; 0: none.
  std::int64_t next() { return waiting_ > 0 ? (--waiting_, 0) : length_; }
  // What became of a guess.
  void learn(std::int64_t drafted, std::int64_t accepted) {
    if (drafted == 0) return;
    if (accepted == 0) {
      misses_ = std::min<std::int64_t>(misses_ + 1, kMostMisses);
      waiting_ = std::int64_t{1} << misses_;
      length_ = kFirst;
    } else {
      misses_ = 0;
      length_ = accepted == drafted ? std::min(kMost, 2 * length_) : std::max(kFirst, accepted + 1);
    }
  }

 private:
  static constexpr std::int64_t kFirst = 3, kMost = 15;
  static constexpr std::int64_t kMostMisses = 6;
  std::int64_t length_ = kFirst, misses_ = 0, waiting_ = 0;
};

}  // namespace kvtide
