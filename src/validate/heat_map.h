// heat_map.h: the colours of layers and tokens on the page of a report.
//
// What reaches the gate is green, the paler the nearer to it; what does not goes from yellow to dark red.
// Both run in factors of the distance from 1, which is what a cosine is about.
// Thread rules: pure functions.
#pragma once

#include <string>

namespace kvtide {

std::string cosine_colour(double cosine, double gate);  // "#aabbcc"

// The scale of these colours from a cosine of 1 over the gate to 0, as HTML.
std::string colour_scale(double gate);

}  // namespace kvtide
