// Causes that show in the sizes of errors: how they are spread over the channels of a row or of what a layer
// adds.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "validate/inspection.h"

namespace kvtide {
namespace {

struct ChannelSpread {
  double slope = 1.0;  // of log error over log size: 1 when errors follow the channels' sizes
  double range = 1.0;  // of the channels' sizes, the tenth largest over the tenth smallest percent
  double small_error = 0.0, large_error = 0.0;  // relative, of the smallest and the largest quarter
};

// size, error: root mean squares per channel.
ChannelSpread spread_of(const std::vector<double>& size, const std::vector<double>& error) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < size.size(); ++i)
    if (size[i] > 0.0 && error[i] > 0.0) order.push_back(i);
  ChannelSpread out;
  if (order.size() < 8) return out;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return size[a] < size[b]; });
  const std::size_t n = order.size();
  out.range = size[order[n - 1 - n / 10]] / size[order[n / 10]];
  double mx = 0.0, my = 0.0, xy = 0.0, xx = 0.0;
  for (const std::size_t i : order) mx += std::log(size[i]), my += std::log(error[i]);
  mx /= static_cast<double>(n), my /= static_cast<double>(n);
  for (const std::size_t i : order) {
    xy += (std::log(size[i]) - mx) * (std::log(error[i]) - my);
    xx += (std::log(size[i]) - mx) * (std::log(size[i]) - mx);
  }
  out.slope = xx > 0.0 ? xy / xx : 1.0;
  for (std::size_t i = 0; i < n / 4; ++i) {
    out.small_error += error[order[i]] / size[order[i]] / static_cast<double>(n / 4);
    out.large_error += error[order[n - 1 - i]] / size[order[n - 1 - i]] / static_cast<double>(n / 4);
  }
  return out;
}

bool one_scale(const ChannelSpread& s) {
  return s.range > 4.0 && s.slope < 0.5 && s.small_error > 3.0 * s.large_error;
}

ChannelSpread of_values(const Golden& golden, const Run& run, int layer) {
  const HeldRows& held = run.rows[static_cast<std::size_t>(layer)];
  const HeldRows& right = golden.rows[static_cast<std::size_t>(layer)];
  std::vector<double> size, error;
  for (std::int64_t head = 0; head < right.kv_heads; ++head)
    for (std::int64_t i = 0; i < right.head_dim; ++i) {
      double s = 0.0, e = 0.0;
      for (Pos t = held.first; t < std::min(run.tokens, held.first + held.rows); ++t) {
        const auto at = static_cast<std::size_t>(i);
        const double x = static_cast<double>(right.value(head, t)[at]);
        const double d = static_cast<double>(held.value(head, t)[at]) - x;
        s += x * x, e += d * d;
      }
      size.push_back(std::sqrt(s)), error.push_back(std::sqrt(e));
    }
  return spread_of(size, error);
}

ChannelSpread of_changes(const Golden& golden, const Run& run, int layer) {
  std::vector<double> size, error;
  for (std::int64_t i = 0; i < golden.width; ++i) {
    double s = 0.0, e = 0.0;
    for (Pos t = 0; t < run.tokens; ++t) {
      const auto at = static_cast<std::size_t>(i);
      const double right = static_cast<double>(golden.stream(layer + 1, t)[at]);
      const double x = right - static_cast<double>(golden.stream(layer, t)[at]);
      const double d = static_cast<double>(run.stream(layer + 1, t, golden.width)[at]) - right;
      s += x * x, e += d * d;
    }
    size.push_back(std::sqrt(s)), error.push_back(std::sqrt(e));
  }
  return spread_of(size, error);
}

// Rounding touches every token; a mistake in what attention sees, or in a state, does not.
bool touches_all(const Inspection& in, int layer) {
  std::set<Pos> tokens;
  for (const Difference& d : in.differences)
    if (d.layer == layer && d.isolated == in.isolates()) tokens.insert(d.token);
  return tokens.size() * 10 >= in.tokens.size() * 9;
}

}  // namespace

bool explain_numbers(Inspection& in) {
  const std::vector<Run>& runs = in.isolated.empty() ? in.chained : in.isolated;
  std::set<int> layers;
  Difference first;
  first.layer = in.layers();
  double worst = 1.0;
  std::set<std::size_t> schedules;
  const auto take = [&](const Difference& d) {
    if (d.layer < 0 || (in.isolates() && !d.isolated)) return;
    layers.insert(d.layer);
    schedules.insert(d.schedule);
    worst = std::min(worst, d.cosine);
    if (d.layer < first.layer || (d.layer == first.layer && d.token < first.token)) first = d;
  };
  for (const Difference& d : in.row_differences) take(d);
  for (const Difference& d : in.differences) take(d);
  if (layers.empty()) return false;
  const Run& run = runs[first.schedule];
  const std::vector<std::size_t> wrong(schedules.begin(), schedules.end());
  Finding found;
  found.layer = first.layer;
  found.token = first.token;
  found.calls = in.schedules[first.schedule].name;
  found.cosine = worst;
  found.check = in.row_differences.empty() ? "isolated layers" : "rows of the state";
  const std::string tail =
      cat(". ", calls_text(in, wrong), "; ", layers_text({layers.begin(), layers.end()}, in.layers()),
          layers.size() == 1 ? " is" : " are", " touched");
  for (const bool values : {true, false}) {
    if (values ? !in.judges_rows() || run.rows.empty() : !in.judges_layers()) continue;
    const Golden& golden = in.wanted(first.schedule, !in.isolated.empty());
    const ChannelSpread spread =
        values ? of_values(golden, run, first.layer) : of_changes(golden, run, first.layer);
    if (!one_scale(spread)) continue;
    found.cause = "one_scale_per_tensor";
    found.what = cat(
        "in layer ", first.layer, " the errors of ", values ? "the values" : "what the layer adds",
        " are of one size in all channels, though the channels' sizes span a factor of ",
        std::round(spread.range), " (error follows size with slope ", std::round(spread.slope * 100) / 100,
        ", 1 would be in proportion): the quarter of small channels is off by ",
        share_text(spread.small_error), ", that of large ones by ", share_text(spread.large_error), tail);
    found.advice =
        "One 8-bit scale serves a whole tensor whose channels differ: use a scale per output channel, or "
        "keep the tensor "
        "in f16.";
    in.report.findings.push_back(std::move(found));
    return true;
  }
  found.cause = in.tight ? "precision" : "numbers";
  found.what = cat("layer ", first.layer, " differs from token ", first.token, " on (worst cosine ",
                   cosine_text(worst), "), and no known mistake explains how",
                   worst > 0.98 && schedules.size() == in.schedules.size() &&
                           static_cast<int>(layers.size()) == in.layers() && touches_all(in, first.layer)
                       ? ". It is small and the same in all calls, as the error of coarser arithmetic is"
                       : "",
                   tail);
  found.advice =
      "Begin with this layer and this token, in isolation: the layers before it are right, and so are the "
      "rows if that "
      "check passed.";
  in.report.findings.push_back(std::move(found));
  return false;
}

}  // namespace kvtide
