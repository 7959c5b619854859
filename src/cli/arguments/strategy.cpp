#include "cli/arguments/strategy.h"

#include <charconv>

#include "base/nearest.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 31;

[[noreturn]] void refuse_strategy(const Given& given, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, cat(given.flag, ": ", why));
}

std::int64_t count_of(const Given& given, std::string_view step) {
  const std::string_view text = step.substr(step.find('=') + 1);
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 1 || value > kMost)
    refuse_strategy(given, cat(quoted(step), " needs a whole number from 1 to ", kMost));
  return value;
}

}  // namespace

Strategy parse_strategy(const Given& given) {
  static constexpr std::string_view kSteps[] = {"prefill", "compact", "attend", "expand"};
  Strategy strategy;
  std::string_view rest = given.value;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != rest.npos;
    const std::string_view step = rest.substr(0, comma), name = step.substr(0, step.find('='));
    if (more) rest.remove_prefix(comma + 1);
    const auto once = [&](std::optional<std::int64_t>& value) {
      if (value) refuse_strategy(given, cat(quoted(name), " stands there twice"));
      value = count_of(given, step);
    };
    if (name == "prefill") {
      once(strategy.prefill);
    } else if (name == "compact") {
      once(strategy.compact);
    } else if (name == "attend") {
      once(strategy.attend);
    } else if (name == "expand") {
      strategy.expand.push_back(count_of(given, step));
    } else {
      const std::string_view meant = nearest(name, kSteps);
      refuse_strategy(
          given,
          cat("there is no step ", quoted(name),
              meant.empty() ? "; there are prefill, compact, attend and expand, for instance prefill=512"
                            : cat("; did you mean ", meant, "?")));
    }
  }
  if (strategy.prefill && strategy.compact && *strategy.compact > *strategy.prefill)
    refuse_strategy(given, cat("compact=", *strategy.compact, " is more than prefill=", *strategy.prefill,
                               "; compact makes a memory smaller"));
  std::int64_t before = strategy.compact.value_or(strategy.prefill.value_or(0));
  for (const std::int64_t capacity : strategy.expand) {
    if (capacity <= before)
      refuse_strategy(given, cat("expand=", capacity, " does not make a memory of ", before, " larger"));
    before = capacity;
  }
  return strategy;
}

}  // namespace kvtide
