#include "validate/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "kvtide/error.h"
#include "kvtide/validate.h"
#include "validate/worst.h"

namespace kvtide {
namespace {

constexpr Colour kInk{40, 40, 40}, kPale{120, 120, 120}, kPaper{255, 255, 255};

Colour between(Colour a, Colour b, double share) {
  const auto mix = [&](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + (to - from) * share));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

Colour along(const std::array<Colour, 4>& stops, double share) {
  const double at = std::clamp(share, 0.0, 1.0) * 3.0;
  const auto stop = std::min<std::size_t>(2, static_cast<std::size_t>(at));
  return between(stops[stop], stops[stop + 1], at - static_cast<double>(stop));
}

std::string short_text(double value) {
  std::string text = cat(value);
  return text.size() > 9 ? text.substr(0, 9) : text;
}

}  // namespace

Colour cosine_colour(double cosine, double gate) {
  constexpr std::array<Colour, 4> good{{{0, 92, 66}, {35, 139, 99}, {116, 196, 150}, {212, 238, 217}}};
  constexpr std::array<Colour, 4> bad{{{255, 224, 102}, {250, 150, 50}, {215, 48, 31}, {103, 0, 13}}};
  const double off = std::max(1.0 - cosine, 1e-9), allowed = std::max(1.0 - gate, 1e-9);
  if (off <= allowed) return along(good, std::log(off / 1e-9) / std::log(allowed / 1e-9 + 1e-12));
  return along(bad, std::log(off / allowed) / std::log(std::max(1.001, 1.0 / allowed)));
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

std::vector<std::byte> report_png(const ValidationReport& report) {
  const WorstTable table = worst_of(report);
  if (table.cells.empty())
    throw Error(ErrorCode::unsupported,
                "no layers were compared, so there is nothing to draw: the model or the "
                "reference gives logits only");
  const int layers = static_cast<int>(table.layers), tokens = static_cast<int>(table.tokens);
  const int cell_width = std::clamp(960 / tokens, 3, 28), cell_height = std::clamp(640 / layers, 8, 22);
  constexpr int kLeft = 88, kTop = 70, kRight = 96, kLegend = 78;
  const int width = std::max(kLeft + tokens * cell_width + kRight, 620);
  const int bottom = kTop + layers * cell_height;
  Picture picture(width, bottom + kLegend, kPaper);

  const Colour verdict = report.passed ? Colour{0, 110, 70} : Colour{176, 20, 25};
  picture.text(10, 10, report.passed ? "PASSED" : "FAILED", verdict, 3);
  picture.text(10 + 7 * 18, 10, cat(report.model).substr(0, 40), kInk, 2);
  if (!report.findings.empty()) {
    const Finding& f = report.findings.front();
    picture.text(10 + 7 * 18, 30,
                 cat(f.cause, f.layer ? cat(", layer ", *f.layer) : "",
                     f.token ? cat(", token ", *f.token) : "", f.calls.empty() ? "" : ", " + f.calls),
                 verdict);
  }
  picture.text(10, 44,
               cat("worst cosine of what a layer adds, over ", report.schedules.size(), " ways to cut ",
                   tokens, " tokens, worst layers first"),
               kPale);
  picture.text(kLeft, kTop - 12, "token", kInk);
  const int label_every = std::max(1, (5 * Picture::kGlyphWidth) / cell_width);
  for (int t = 0; t < tokens; t += label_every)
    if (t > 0 && t * cell_width > 36) picture.text(kLeft + t * cell_width, kTop - 12, cat(t), kPale);
  const std::vector<int> order = table.layers_worst_first();
  for (int row = 0; row < layers; ++row) {
    const int layer = order[static_cast<std::size_t>(row)], y = kTop + row * cell_height;
    picture.text(10, y + (cell_height - 7) / 2, cat("layer ", layer), kInk);
    double worst = 1.0;
    for (int t = 0; t < tokens; ++t) {
      const double cosine = table.at(layer, t).cosine;
      worst = std::min(worst, cosine);
      picture.fill(kLeft + t * cell_width, y, cell_width - 1, cell_height - 1,
                   cosine_colour(cosine, report.gate));
    }
    picture.text(kLeft + tokens * cell_width + 8, y + (cell_height - 7) / 2, short_text(worst),
                 worst < report.gate ? verdict : kPale);
  }
  // The legend: from 1 - 1e-9 over the gate to 0.
  constexpr int kSteps = 240;
  const int y = bottom + 22;
  for (int i = 0; i < kSteps; ++i) {
    const double off = std::pow(10.0, -9.0 + 9.0 * i / (kSteps - 1));
    picture.fill(kLeft + 2 * i, y, 2, 12, cosine_colour(1.0 - off, report.gate));
  }
  picture.text(kLeft, y + 18, "1", kInk);
  picture.text(kLeft + 2 * kSteps - 6, y + 18, "0", kInk);
  const int gate =
      kLeft + static_cast<int>(2 * kSteps * (std::log10(std::max(1e-9, 1.0 - report.gate)) + 9.0) / 9.0);
  picture.fill(gate, y - 4, 2, 20, kInk);
  picture.text(std::clamp(gate - 20, kLeft + 12, kLeft + 2 * kSteps - 90), y + 18, cat("gate ", report.gate),
               kInk);
  return picture.png();
}

}  // namespace kvtide
