// loop_guard.h: notices that an answer says the same over and over.
//
// Ownership and thread rules: a plain value.
#pragma once

#include <string>
#include <string_view>

namespace kvtide {

class LoopGuard {
 public:
  // The answer goes on with `text`. True when it ends with four copies of one piece of at most kLongest bytes, and these
  // take at least kLeast bytes: a ruled line or a row of a table is no loop.
  bool add(std::string_view text);

  static constexpr std::size_t kCopies = 4, kLongest = 400, kLeast = 160;

 private:
  std::string tail_;  // the newest kCopies * kLongest bytes
};

}  // namespace kvtide
