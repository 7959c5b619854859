// Keys that are rotated by other angles: the angle of every pair is measured, and what they have in common is
// the cause.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "base/text.h"
#include "validate/inspection.h"
#include "validate/wrong_layer.h"

namespace kvtide {
namespace {

using Turn = std::complex<double>;

constexpr double kSure = 0.999;  // of a pair's length is explained by one angle per position

// By how much more than the reference's the keys of a pair are turned per position.
struct Measured {
  double more = 0.0, sureness = 0.0;
};

double sureness_of(const std::vector<Turn>& turns, double angle) {
  Turn sum = 0.0;
  double all = 0.0;
  for (std::size_t t = 0; t < turns.size(); ++t) {
    sum += turns[t] * std::polar(1.0, -angle * static_cast<double>(t));
    all += std::abs(turns[t]);
  }
  return all > 0.0 ? std::abs(sum) / all : 0.0;
}

// turns: of every token, found times the conjugate of what is right.
Measured measured(const std::vector<Turn>& turns) {
  const auto steps = static_cast<int>(8 * turns.size());
  Measured best;
  const double step = 2.0 * std::numbers::pi / steps;
  for (int i = -steps / 2; i <= steps / 2; ++i)
    if (const double sure = sureness_of(turns, i * step); sure > best.sureness + 1e-12)
      best = {i * step, sure};
  // Between the steps around the best.
  double low = best.more - step, high = best.more + step;
  for (int round = 0; round < 60; ++round) {
    const double a = low + (high - low) / 3.0, b = high - (high - low) / 3.0;
    (sureness_of(turns, a) < sureness_of(turns, b) ? low : high) =
        sureness_of(turns, a) < sureness_of(turns, b) ? a : b;
  }
  best.more = (low + high) / 2.0;
  best.sureness = sureness_of(turns, best.more);
  return best;
}

// The angles that the keys have instead; empty: they are not just rotated otherwise.
std::vector<double> fitted(const HeldRows& held, const HeldRows& right, const std::vector<double>& angles,
                           std::int64_t tokens) {
  const std::size_t pairs = angles.size();
  std::vector<double> out;
  for (std::size_t i = 0; i < pairs; ++i) {
    std::vector<Turn> turns;
    double length = 0.0, right_length = 0.0;
    for (Pos t = 0; t < tokens; ++t) {
      Turn sum = 0.0;
      for (std::int64_t head = 0; head < right.kv_heads; ++head) {
        const auto a = held.key(head, t), b = right.key(head, t);
        const auto pair = [&](std::span<const float> key) {
          return Turn(static_cast<double>(key[i]), static_cast<double>(key[i + pairs]));
        };
        sum += pair(a) * std::conj(pair(b));
        length += std::norm(pair(a));
        right_length += std::norm(pair(b));
      }
      turns.push_back(sum);
    }
    const Measured one = measured(turns);
    if (one.sureness < kSure || std::abs(length - right_length) > 0.01 * right_length) return {};
    out.push_back(angles[i] + one.more);
  }
  return out;
}

struct Told {
  std::string cause, what, advice;
};

bool near(double a, double b, double room) { return std::abs(a - b) <= room; }

// What the fitted angles have in common. room: how well an angle is known.
Told told_of(const std::vector<double>& fitted, const std::vector<double>& angles, double room) {
  const auto all = [&](auto&& test) {
    for (std::size_t i = 0; i < angles.size(); ++i)
      if (!test(i)) return false;
    return true;
  };
  constexpr const char* kConfig =
      "Take it from the model's configuration (rope_theta, rope_parameters, rope.freq_base).";
  if (all([&](std::size_t i) { return near(fitted[i], -angles[i], room); }))
    return {"rope_sign", "keys are rotated backwards", "Look at the sign of the sine."};
  if (all([&](std::size_t i) { return near(fitted[i], 0.0, room); }))
    return {"rope_skipped", "keys are not rotated", "Rotate queries and keys before attention."};
  const double factor = fitted[0] / angles[0];
  if (all([&](std::size_t i) { return near(fitted[i], factor * angles[i], room); }) &&
      !near(factor, 1.0, 1e-3))
    return {"rope_scaling",
            cat("all angles of the keys are ", std::round(factor * 1e4) / 1e4, " times what they should be"),
            "Look at the factor of linear scaling: positions are divided by it, once."};
  if (angles.size() > 1 && fitted[1] > 0.0 && near(fitted[0], 1.0, room)) {
    const double pairs = static_cast<double>(angles.size()), base = std::pow(fitted[1], -pairs);
    const double own = std::pow(angles[1] / angles[0], -pairs);
    const auto geometric = [&](const std::vector<double>& f, double b) {
      return all(
          [&](std::size_t i) { return near(f[i], std::pow(b, -static_cast<double>(i) / pairs), room); });
    };
    if (geometric(fitted, base) && !geometric(angles, own))
      return {"rope_scaling",
              cat("the angles of the keys are those of the base ", std::round(base),
                  " as they are; the reference's are scaled"),
              "The configuration scales the angles (rope_scaling: linear, llama3, yarn): apply it."};
    if (geometric(fitted, base))
      return {"rope_theta",
              cat("the angles of the keys fit a base of ", std::round(base), ", and the reference's, of ",
                  std::round(own)),
              kConfig};
  }
  std::string pairs;
  for (std::size_t i = 0; i < angles.size() && pairs.size() < 60; ++i)
    if (!near(fitted[i], angles[i], room))
      pairs += cat(pairs.empty() ? "" : ", ", i, ": ", fitted[i], " for ", angles[i]);
  return {"rope_scaling",
          cat("keys are rotated by other angles (radians a position of the pairs ", pairs, ")"),
          "The configuration says how angles are scaled (rope_scaling: linear, llama3, yarn)."};
}

}  // namespace

bool explain_rotation(Inspection& in) {
  const auto wrong = in.judges_rows() ? lowest_wrong(in, true) : std::nullopt;
  if (!wrong) return false;
  const auto angles = in.reference.frequencies(wrong->layer);
  const auto window = in.shape.layers[static_cast<std::size_t>(wrong->layer)].window;
  const std::size_t s = wrong->telling(in);
  const Run& run = wrong->runs(in)[s];
  const auto layer = static_cast<std::size_t>(wrong->layer);
  if (angles.empty() || run.rows.empty() || (window && run.rows[layer].first > 0)) return false;
  const HeldRows &held = run.rows[layer], &right = in.wanted(s, wrong->isolated).rows[layer];
  if (held.first != 0 || held.rows < run.tokens || wrong->at.size() != in.schedules.size()) return false;
  const double room = 0.2 / static_cast<double>(run.tokens);
  const std::vector<double> found_angles = fitted(held, right, angles, run.tokens);
  bool other = false;
  // What rounding of this gate turns a key by, it may turn the last one by.
  const double phase = std::max(0.01, relative_of(std::min(in.options.row_gate, in.options.gate)));
  for (std::size_t i = 0; i < found_angles.size(); ++i)
    other = other || !near(found_angles[i], angles[i], phase / static_cast<double>(run.tokens));
  if (!other) return false;
  const Told told = told_of(found_angles, angles, std::min(room, 2e-3));
  Finding found;
  found.cause = told.cause;
  found.check = "rows of the state";
  found.layer = wrong->layer;
  found.token = wrong->at.at(s).first;
  found.calls = in.schedules[s].name;
  found.cosine = wrong->at.at(s).second;
  found.what = cat("in layer ", wrong->layer, ", attention: ", told.what,
                   "; measured from the keys of every pair, whose lengths are right. ",
                   calls_text(in, wrong->schedules()), "; ",
                   layers_text({wrong->layers.begin(), wrong->layers.end()}, in.layers()),
                   wrong->layers.size() == 1 ? " is" : " are", " touched");
  found.advice = told.advice;
  in.report.findings.push_back(std::move(found));
  return true;
}

}  // namespace kvtide
