#include "cli/optional/bench_profile.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "cli/output/terminal.h"

namespace kvtide {
namespace {

struct TimedPart {
  const char* name;
  double seconds;
  const Work* work = nullptr;  // nullptr: nothing is counted
  double limit_gop_s = 0.0;    // of its operations
};

std::vector<TimedPart> parts(const PassTimes& times, const std::optional<PassWork>& work,
                             const PassLimits& limits) {
  return {{"matmul", times.matmul, work ? &work->matmul : nullptr, limits.products},
          {"quantise", times.quantise},
          {"attention", times.attention, work ? &work->attention : nullptr, limits.attention},
          {"rows", times.rows},
          {"head", times.head, work ? &work->head : nullptr, limits.products},
          {"seal", times.seal},
          {"rest", times.rest}};
}

double rate(double amount, double seconds) { return seconds > 0.0 ? amount / seconds * 1e-9 : 0.0; }

}  // namespace

std::string profile_text(const PassTimes& times, const std::optional<PassWork>& work,
                         const PassLimits& limits, std::int64_t tokens) {
  std::string text;
  for (const TimedPart& part : parts(times, work, limits)) {
    if (part.seconds == 0.0) continue;
    std::string name = part.name;
    name.resize(10, ' ');
    text += cat("  ", name, number_text(part.seconds * 1e3 / static_cast<double>(tokens), 4), " ms/tok  ",
                number_text(part.seconds / times.total() * 100.0, 1), "%");
    if (part.work != nullptr && part.work->operations > 0.0) {
      const double gop_s = rate(part.work->operations, part.seconds),
                   gb_s = rate(part.work->bytes, part.seconds);
      text += cat("  ", number_text(gop_s, 0), " GOP/s, ", number_text(gop_s / part.limit_gop_s * 100.0, 0),
                  "%; ", number_text(gb_s, 1), " GB/s, ", number_text(gb_s / limits.read_gb_s * 100.0, 0),
                  "% of the limit");
    }
    text += "\n";
  }
  return text;
}

Json profile_json(const PassTimes& times, const std::optional<PassWork>& work, const PassLimits& limits,
                  std::int64_t tokens) {
  Json list = Json::array();
  for (const TimedPart& part : parts(times, work, limits)) {
    Json item = Json::object();
    item.set("part", part.name).set("ms_tok", part.seconds * 1e3 / static_cast<double>(tokens));
    if (part.work != nullptr)
      item.set("operations", part.work->operations)
          .set("bytes", part.work->bytes)
          .set("limit_gop_s", part.limit_gop_s);
    list.push(std::move(item));
  }
  return list;
}

}  // namespace kvtide
