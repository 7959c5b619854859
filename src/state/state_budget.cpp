// state_budget.cpp: the budget of a procedural state: whatever it is asked for, it never holds more.
#include <utility>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/state.h"

namespace kvtide {

std::string KvState::why_not_budget(std::int64_t bytes, Pos expected) const {
  if (!past_) return "only a procedural memory has a budget";
  KvSpec spec = spec_;
  spec.procedural->budget = bytes;
  spec.procedural->budget_for = expected;
  return why_not_within_budget(spec, position());
}

void KvState::set_budget(std::int64_t bytes, Pos expected) {
  if (const std::string why = why_not_budget(bytes, expected); !why.empty())
    throw Error(ErrorCode::invalid_argument, "KV state: " + why);
  spec_.procedural->budget = bytes;
  spec_.procedural->budget_for = expected;
}

// A memory that grows with the text was planned for the tokens that were expected.
std::int64_t KvState::over_budget(std::int64_t tokens) const {
  if (!past_ || spec_.procedural->budget == 0) return 0;
  const ProceduralSpec& p = *spec_.procedural;
  const Pos end = position() + tokens;
  if (p.budget_for == 0 || end <= p.budget_for || !grows(p)) return 0;
  const std::int64_t needed = most_bytes(spec_, end).total();
  return needed > p.budget ? needed : 0;
}

void KvState::check_budget(std::int64_t tokens) const {
  if (const std::int64_t needed = over_budget(tokens); needed > 0) {
    const ProceduralSpec& p = *spec_.procedural;
    throw Error(
        ErrorCode::context_full,
        cat("the KV budget of ", given_bytes(p.budget), " was planned for ", p.budget_for,
            " tokens: position ", position(), " and ", tokens, " more would need ", enough_for(needed),
            "; expect more tokens (-c) or bound what grows (--kv-full-rows, --kv-levels)"));
  }
}

void KvState::pin(const PosRange& range) {
  if (!past_)
    throw Error(ErrorCode::invalid_argument,
                "only a procedural memory can pin positions: others keep or forget all");
  std::vector<PosRange> pins = with_pin(past_->spec().pins, range);
  if (const std::int64_t budget = spec_.procedural->budget; budget > 0) {
    KvSpec spec = spec_;
    spec.procedural->pins = pins;
    const std::int64_t needed = planned_bytes(spec, position()).total();
    if (needed > budget)
      throw Error(ErrorCode::invalid_argument, cat("cannot pin positions ", range.first, " to ", range.last,
                                                   ": the memory would hold up to ", enough_for(needed),
                                                   ", more than its budget of ", given_bytes(budget)));
  }
  past_->pin(range);
  spec_.procedural->pins = std::move(pins);
}

}  // namespace kvtide
