// bench_profile.h: where the time of a bench's passes went, part by part, beside what the machine could do.
//
// Units: milliseconds per token, giga-operations and gigabytes per second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json/json.h"
#include "eval/limits.h"

namespace kvtide {

// A line per part; `tokens` were read or written. Without `work` no shares of limits.
std::string profile_text(const PassTimes& times, const std::optional<PassWork>& work,
                         const PassLimits& limits, std::int64_t tokens);
Json profile_json(const PassTimes& times, const std::optional<PassWork>& work, const PassLimits& limits,
                  std::int64_t tokens);

}  // namespace kvtide
