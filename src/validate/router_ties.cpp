#include "validate/router_ties.h"

#include <algorithm>

#include "validate/measure.h"

namespace kvtide {
namespace {

// A chain brings errors along, and a router sees them larger than the stream shows them.
constexpr double kRouterGain = 4.0;

// Routers have layers of their own, which make errors of coarse products larger: but no more than the
// reference tells.
constexpr double kCoarseTie = 0.5;

bool chosen(const Course& course, const NearTie& tie) {
  return std::any_of(course.choices.begin(), course.choices.end(), [&](const RouterChoice& choice) {
    return choice.layer == tie.layer && choice.token == tie.token;
  });
}

// The places of the lowest layer where the run took the other expert.
std::vector<RouterChoice> taken(const Course& course, const Run& run, double gate) {
  const Golden& golden = *course.golden;
  std::vector<RouterChoice> out;
  double nearest = 0.0;
  for (const NearTie& tie : golden.ties) {
    if (tie.token >= run.tokens || chosen(course, tie)) continue;
    if (!out.empty() && out.front().layer != tie.layer) break;
    const auto found = run.stream(tie.layer + 1, tie.token, golden.width);
    const Likeness right = likeness(found, golden.stream(tie.layer + 1, tie.token));
    if (likeness(found, tie.stream).distance > 0.5 * right.distance) continue;
    const double entered =
        likeness(run.stream(tie.layer, tie.token, golden.width), golden.stream(tie.layer, tie.token))
            .relative();
    if (tie.margin >= tie_of(gate) + kRouterGain * entered) continue;
    // Of several experts that come near, the one whose result is nearest.
    const double distance = likeness(found, tie.stream).distance;
    if (out.empty() || out.back().token != tie.token) {
      out.push_back({tie.layer, tie.token, tie.expert});
      nearest = distance;
    } else if (distance < nearest) {
      out.back().expert = tie.expert;
      nearest = distance;
    }
  }
  return out;
}

}  // namespace

double tie_of(double gate) {
  return is_coarse(gate) ? std::min(kCoarseTie, kRouterGain * relative_of(gate)) : relative_of(gate);
}

Course follow(Reference& reference, std::span<const TokenId> tokens, const Course& start, const Run& run,
              double gate) {
  Course course = start;
  while (!course.open) {
    const std::vector<RouterChoice> more = taken(course, run, gate);
    if (more.empty()) break;
    course.choices.insert(course.choices.end(), more.begin(), more.end());
    if (auto other = reference.run_choosing(tokens, course.choices))
      course.golden = std::make_shared<const Golden>(std::move(*other));
    else
      course.open = *std::min_element(more.begin(), more.end(),
                                      [](const auto& a, const auto& b) { return a.token < b.token; });
  }
  return course;
}

}  // namespace kvtide
