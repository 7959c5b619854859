// bench_profile.h: where the time of a bench's passes went, part by part, beside what the machine could do.
//
// Units: milliseconds per token, giga-operations and gigabytes per second.
#pragma once

#include <cstdint>
#include <string>

#include "cli/json.h"
#include "eval/limits.h"

namespace kvtide {

// A line per part; `tokens` were read or written. Shares of limits are left out where the work of a part is
// not counted: memories that compress hold other rows than the text has.
std::string profile_text(const PassTimes& times, const PassWork& work, const MachineLimits& limits,
                         const SessionOptions& options, std::int64_t tokens);
Json profile_json(const PassTimes& times, const PassWork& work, const MachineLimits& limits,
                  const SessionOptions& options, std::int64_t tokens);

}  // namespace kvtide
