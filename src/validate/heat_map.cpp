#include "validate/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/text.h"

namespace kvtide {
namespace {

struct Colour {
  std::uint8_t red, green, blue;
};
using Stops = std::array<Colour, 4>;  // evenly apart

constexpr Stops kGood{{{0, 92, 66}, {35, 139, 99}, {116, 196, 150}, {212, 238, 217}}};
constexpr Stops kBad{{{255, 224, 102}, {250, 150, 50}, {215, 48, 31}, {103, 0, 13}}};
constexpr double kBest = 1e-9;  // distances from 1 below this look alike

Colour along(const Stops& stops, double share) {
  const double at = std::clamp(share, 0.0, 1.0) * 3.0;
  const auto stop = std::min<std::size_t>(2, static_cast<std::size_t>(at));
  const Colour a = stops[stop], b = stops[stop + 1];
  const auto mix = [&](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + (to - from) * (at - static_cast<double>(stop))));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

std::string colour_text(Colour colour) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "#";
  for (const std::uint8_t part : {colour.red, colour.green, colour.blue}) {
    out += digits[part >> 4];
    out += digits[part & 15];
  }
  return out;
}

}  // namespace

std::string cosine_colour(double cosine, double gate) {
  const double off = std::max(1.0 - cosine, kBest), allowed = std::max(1.0 - gate, kBest);
  if (off <= allowed)
    return colour_text(along(kGood, std::log(off / kBest) / std::log(allowed / kBest + 1e-12)));
  return colour_text(along(kBad, std::log(off / allowed) / std::log(std::max(1.001, 1.0 / allowed))));
}

std::string colour_scale(double gate) {
  const auto percent = [](double share) { return cat(std::round(share * 1000.0) / 10.0, "%"); };
  // Of the way from the best distance to 1.
  const double at_gate = 1.0 - std::log(std::max(1.0 - gate, kBest)) / std::log(kBest);
  std::string stops;
  for (std::size_t i = 0; i < kGood.size(); ++i)
    stops += cat(",", colour_text(kGood[i]), " ", percent(at_gate * static_cast<double>(i) / 3.0));
  for (std::size_t i = 0; i < kBad.size(); ++i)
    stops += cat(",", colour_text(kBad[i]), " ",
                 percent(at_gate + (1.0 - at_gate) * static_cast<double>(i) / 3.0));
  return cat("<div class=scale><div style=\"background:linear-gradient(to right", stops,
             ")\"></div><span>1</span><span style=\"position:absolute;left:", percent(at_gate), "\">| gate ",
             gate, "</span><span>0</span></div>\n");
}

}  // namespace kvtide
