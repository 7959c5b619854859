// unicode.h: the classes of characters that pre-tokenisers distinguish.
//
// The classes are those of the `tokenizers` package (see tools/make_unicode_tables.py), because ids have to
// agree with it.
// Thread rules: constant data. Every code point has a class; most have no bit set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvtide {

using CharClass = std::uint8_t;
inline constexpr CharClass kLetter = 1;       // \p{L}
inline constexpr CharClass kNumber = 2;       // \p{N}
inline constexpr CharClass kPunctuation = 4;  // \p{P}
inline constexpr CharClass kSpace = 8;        // \s: White_Space
inline constexpr CharClass kDigit = 16;       // what a Digits splitter isolates: \p{N} of a newer Unicode

// Sorted; entry = first code point << 8 | class, valid up to the next entry.
inline constexpr std::size_t kClassChangeCount = 1859;
extern const std::uint32_t kClassChanges[kClassChangeCount];
// Index into kClassChanges of the entry that holds at code point page * 256.
inline constexpr std::size_t kClassPageCount = 0x324;
extern const std::uint16_t kClassPages[kClassPageCount + 1];

CharClass char_class_by_table(char32_t code_point) noexcept;

// The same for ASCII without a search; a test holds the two against each other.
inline constexpr auto kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  for (std::size_t c = 0; c < 128; ++c) {
    const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    const bool symbol = c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' || c == '`' ||
                        c == '|' || c == '~';
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      classes[c] = kSpace;
    } else if (letter) {
      classes[c] = kLetter;
    } else if (c >= '0' && c <= '9') {
      classes[c] = kNumber | kDigit;
    } else if (c > ' ' && c < 0x7f && !symbol) {
      classes[c] = kPunctuation;
    }
  }
  return classes;
}();

inline CharClass char_class(char32_t code_point) noexcept {
  return code_point < 128 ? kAsciiClasses[code_point] : char_class_by_table(code_point);
}

}  // namespace kvtide
