#include "validate/picture.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace kvtide {
namespace {

struct Glyph {
  char sign;
  std::array<std::uint8_t, 7> rows;  // five bits each, the leftmost is 16
};

constexpr Glyph kFont[] = {
    {'0', {14, 17, 19, 21, 25, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}},
    {'2', {14, 17, 1, 6, 8, 16, 31}},    {'3', {30, 1, 1, 14, 1, 1, 30}},
    {'4', {2, 6, 10, 18, 31, 2, 2}},     {'5', {31, 16, 30, 1, 1, 17, 14}},
    {'6', {6, 8, 16, 30, 17, 17, 14}},   {'7', {31, 1, 2, 4, 8, 8, 8}},
    {'8', {14, 17, 17, 14, 17, 17, 14}}, {'9', {14, 17, 17, 15, 1, 2, 12}},
    {'A', {14, 17, 17, 31, 17, 17, 17}}, {'B', {30, 17, 17, 30, 17, 17, 30}},
    {'C', {14, 17, 16, 16, 16, 17, 14}}, {'D', {28, 18, 17, 17, 17, 18, 28}},
    {'E', {31, 16, 16, 30, 16, 16, 31}}, {'F', {31, 16, 16, 30, 16, 16, 16}},
    {'G', {14, 17, 16, 23, 17, 17, 15}}, {'H', {17, 17, 17, 31, 17, 17, 17}},
    {'I', {14, 4, 4, 4, 4, 4, 14}},      {'J', {7, 2, 2, 2, 2, 18, 12}},
    {'K', {17, 18, 20, 24, 20, 18, 17}}, {'L', {16, 16, 16, 16, 16, 16, 31}},
    {'M', {17, 27, 21, 21, 17, 17, 17}}, {'N', {17, 25, 21, 19, 17, 17, 17}},
    {'O', {14, 17, 17, 17, 17, 17, 14}}, {'P', {30, 17, 17, 30, 16, 16, 16}},
    {'Q', {14, 17, 17, 17, 21, 18, 13}}, {'R', {30, 17, 17, 30, 20, 18, 17}},
    {'S', {15, 16, 16, 14, 1, 1, 30}},   {'T', {31, 4, 4, 4, 4, 4, 4}},
    {'U', {17, 17, 17, 17, 17, 17, 14}}, {'V', {17, 17, 17, 17, 17, 10, 4}},
    {'W', {17, 17, 17, 21, 21, 27, 17}}, {'X', {17, 17, 10, 4, 10, 17, 17}},
    {'Y', {17, 17, 10, 4, 4, 4, 4}},     {'Z', {31, 1, 2, 4, 8, 16, 31}},
    {'.', {0, 0, 0, 0, 0, 12, 12}},      {',', {0, 0, 0, 0, 12, 4, 8}},
    {'-', {0, 0, 0, 31, 0, 0, 0}},       {':', {0, 12, 12, 0, 12, 12, 0}},
    {'/', {1, 1, 2, 4, 8, 16, 16}},      {'(', {2, 4, 8, 8, 8, 4, 2}},
    {')', {8, 4, 2, 2, 2, 4, 8}},        {'_', {0, 0, 0, 0, 0, 0, 31}},
    {'=', {0, 0, 31, 0, 31, 0, 0}},      {'+', {0, 4, 4, 31, 4, 4, 0}},
    {'<', {2, 4, 8, 16, 8, 4, 2}},       {'>', {8, 4, 2, 1, 2, 4, 8}},
};

const Glyph* glyph_of(char sign) {
  if (sign >= 'a' && sign <= 'z') sign = static_cast<char>(sign - 'a' + 'A');
  for (const Glyph& glyph : kFont)
    if (glyph.sign == sign) return &glyph;
  return nullptr;
}

using Bytes = std::vector<std::byte>;

void put(Bytes& out, std::uint32_t value) {  // most significant byte first
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<std::byte>(value >> shift & 255u));
}

// The checksum of PNG chunks: CRC-32 of ISO 3309, polynomial 0xEDB88320 when reflected.
std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

void put_chunk(Bytes& out, const char* type, const Bytes& data) {
  put(out, static_cast<std::uint32_t>(data.size()));
  Bytes body(4);
  std::memcpy(body.data(), type, 4);
  body.insert(body.end(), data.begin(), data.end());
  out.insert(out.end(), body.begin(), body.end());
  put(out, crc32(body));
}

// A zlib stream of stored blocks (RFC 1950, RFC 1951).
Bytes stored(const Bytes& data) {
  Bytes out = {std::byte{0x78}, std::byte{0x01}};
  constexpr std::size_t kBlock = 65535;
  for (std::size_t at = 0; at < data.size(); at += kBlock) {
    const std::size_t size = std::min(kBlock, data.size() - at);
    out.push_back(at + size == data.size() ? std::byte{1} : std::byte{0});
    for (const std::size_t field : {size, size ^ 0xFFFFu}) {
      out.push_back(static_cast<std::byte>(field & 255u));
      out.push_back(static_cast<std::byte>(field >> 8 & 255u));
    }
    const auto first = data.begin() + static_cast<std::ptrdiff_t>(at);
    out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(size));
  }
  std::uint32_t low = 1, high = 0;  // Adler-32
  for (const std::byte byte : data) {
    low = (low + static_cast<std::uint32_t>(byte)) % 65521u;
    high = (high + low) % 65521u;
  }
  put(out, high << 16 | low);
  return out;
}

}  // namespace

Picture::Picture(int width, int height, Colour background)
    : width_(width),
      height_(height),
      pixels_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3) {
  fill(0, 0, width, height, background);
}

void Picture::fill(int x, int y, int width, int height, Colour colour) {
  for (int row = std::max(0, y); row < std::min(height_, y + height); ++row)
    for (int column = std::max(0, x); column < std::min(width_, x + width); ++column) {
      std::uint8_t* pixel = pixels_.data() + (static_cast<std::ptrdiff_t>(row) * width_ + column) * 3;
      pixel[0] = colour.red;
      pixel[1] = colour.green;
      pixel[2] = colour.blue;
    }
}

void Picture::text(int x, int y, std::string_view words, Colour colour, int scale) {
  for (const char sign : words) {
    if (const Glyph* glyph = glyph_of(sign))
      for (int row = 0; row < 7; ++row)
        for (int column = 0; column < 5; ++column)
          if ((glyph->rows[static_cast<std::size_t>(row)] >> (4 - column) & 1) != 0)
            fill(x + column * scale, y + row * scale, scale, scale, colour);
    x += kGlyphWidth * scale;
  }
}

std::vector<std::byte> Picture::png() const {
  Bytes out;
  for (const int byte : {0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A})
    out.push_back(static_cast<std::byte>(byte));
  Bytes header;
  put(header, static_cast<std::uint32_t>(width_));
  put(header, static_cast<std::uint32_t>(height_));
  for (const int byte : {8, 2, 0, 0, 0})
    header.push_back(static_cast<std::byte>(byte));  // 8 bits of red, green, blue
  put_chunk(out, "IHDR", header);
  Bytes lines;
  for (int row = 0; row < height_; ++row) {
    lines.push_back(std::byte{0});  // no filter
    const auto* first =
        reinterpret_cast<const std::byte*>(pixels_.data()) + static_cast<std::ptrdiff_t>(row) * width_ * 3;
    lines.insert(lines.end(), first, first + static_cast<std::ptrdiff_t>(width_) * 3);
  }
  put_chunk(out, "IDAT", stored(lines));
  put_chunk(out, "IEND", {});
  return out;
}

}  // namespace kvtide
