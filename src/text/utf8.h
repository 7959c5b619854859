// utf8.h: UTF-8 checked once at the door, then walked without checks; and a stream that prints only whole
// characters.
//
// Valid means valid by RFC 3629: shortest form, no surrogates, nothing above U+10FFFF.
// Thread rules: free functions from any thread; a Utf8Stream belongs to one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kvtide {

// Byte offset of the first sequence that is not valid UTF-8.
std::optional<std::size_t> find_invalid_utf8(std::string_view text) noexcept;

// Throws Error(bad_text): "<what>: byte 17 is not valid UTF-8 ...".
void require_utf8(std::string_view text, std::string_view what);

// Length in bytes of the character that starts with `lead`. Meaningful only inside valid UTF-8.
inline std::size_t utf8_length(char lead) noexcept {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// The character at text[at]. The text has to be valid UTF-8 and `at` the start of a character.
char32_t utf8_at(std::string_view text, std::size_t at) noexcept;

void append_utf8(std::string& out, char32_t code_point);

// Takes the bytes of tokens, which may end in the middle of a character, and gives back whole characters
// only.
//   for (TokenId id : ids) show(stream.push(tokenizer.piece(id)));
//   show(stream.finish());
// Bytes that can never become a character come out as U+FFFD, so what is shown is always valid UTF-8.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  // What is left at the end of the text: "" or one U+FFFD for a character that was begun and not finished.
  std::string finish();

 private:
  std::string pending_;  // a proper prefix of a character: at most 3 bytes
};

}  // namespace kvtide
