#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace kvtide {
namespace {

constexpr std::size_t kAlphabetEnd = 0x144;
constexpr std::int16_t kOutside = -1;

constexpr std::array<std::int16_t, kAlphabetEnd> make_alphabet() {
  std::array<std::int16_t, kAlphabetEnd> byte_of{};
  for (auto& byte : byte_of) byte = kOutside;
  std::size_t shifted = 0x100;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    byte_of[printable ? byte : shifted++] = static_cast<std::int16_t>(byte);
  }
  return byte_of;
}

constexpr auto kByteOf = make_alphabet();

}  // namespace

std::optional<std::string> from_byte_level(std::string_view stored) {
  std::string bytes;
  bytes.reserve(stored.size());
  if (find_invalid_utf8(stored)) return std::nullopt;
  for (std::size_t at = 0; at < stored.size(); at += utf8_length(stored[at])) {
    const char32_t character = utf8_at(stored, at);
    if (character >= kAlphabetEnd || kByteOf[character] == kOutside) return std::nullopt;
    bytes += static_cast<char>(static_cast<unsigned char>(kByteOf[character]));
  }
  return bytes;
}

}  // namespace kvtide
