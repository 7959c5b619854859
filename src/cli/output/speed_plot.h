// speed_plot.h: tokens per second against depth as a picture: an SVG with two panels for every model, reading
// and writing, a line for every engine and one for what the machine allows.
//
// Ownership and thread rules: plain values. Units: tokens, tokens per second.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvtide {

struct SpeedPoint {
  std::string engine;  // "kvtide", "llama.cpp"
  std::string model;
  bool reads = false;  // else writes, token by token
  std::int64_t depth = 0;
  double tok_s = 0.0;
  double limit_tok_s = 0.0;  // of the machine; 0: not known
};

std::string speed_plot(std::span<const SpeedPoint> points);

// The rows of `bench --json` or of bench/compare.py. Throws Error(io) or Error(bad_format) that names file
// and row.
std::vector<SpeedPoint> read_speed_points(const std::string& path);

}  // namespace kvtide
