// byte_level.h: the alphabet of byte-level vocabularies, in which every byte is written as one printable
// character.
//
// GPT-2's convention: the printable bytes 0x21-0x7e, 0xa1-0xac and 0xae-0xff stand for themselves (as code
// points), the other 68 are the code points from U+0100 on, in order. A space is therefore U+0120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvtide {

// The bytes that a stored token stands for; nullopt when it uses a character outside the alphabet.
std::optional<std::string> from_byte_level(std::string_view stored);

}  // namespace kvtide
