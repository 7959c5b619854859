// heat_map.h: the colours of layers and tokens, for the picture and for the page.
//
// Thread rules: pure functions.
#pragma once

#include <string>

#include "validate/picture.h"

namespace kvtide {

// What reaches the gate is green, the paler the nearer to it; what does not goes from yellow to dark red.
// Both run in factors of the distance from 1, which is what a cosine is about.
Colour cosine_colour(double cosine, double gate);
std::string colour_text(Colour colour);  // "#aabbcc"

}  // namespace kvtide
