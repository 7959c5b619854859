// picture.h: a small picture in memory: rectangles and text in a font of its own, written as PNG.
//
// Ownership: owns its pixels. Thread rules: none needed. Units: pixels from the upper left corner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvtide {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
};

class Picture {
 public:
  static constexpr int kGlyphWidth = 6, kGlyphHeight = 8;  // with the gap behind and below

  Picture(int width, int height, Colour background);
  int width() const { return width_; }
  int height() const { return height_; }

  void fill(int x, int y, int width, int height, Colour colour);  // what lies outside is left out
  // Capitals, digits and a few signs, each `scale` times as large; lower case is written as capitals, what
  // the font lacks as a blank.
  void text(int x, int y, std::string_view words, Colour colour, int scale = 1);

  // Without compression: stored blocks.
  std::vector<std::byte> png() const;

 private:
  int width_, height_;
  std::vector<std::uint8_t> pixels_;  // [height][width][3]
};

}  // namespace kvtide
