#include "text/unicode.h"

#include <algorithm>

namespace kvtide {

CharClass char_class_by_table(char32_t code_point) noexcept {
  const std::size_t page = code_point >> 8;
  const std::uint32_t* first = kClassChanges;
  const std::uint32_t* last = kClassChanges + kClassChangeCount;
  if (page < kClassPageCount) {  // between two page starts lie a few dozen entries at most
    first = kClassChanges + kClassPages[page];
    last = kClassChanges + kClassPages[page + 1] + 1;
  }
  const std::uint32_t key = static_cast<std::uint32_t>(code_point) << 8 | 0xff;
  return static_cast<CharClass>(std::upper_bound(first, last, key)[-1] & 0xff);
}

}  // namespace kvtide
