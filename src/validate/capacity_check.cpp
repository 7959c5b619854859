// A full memory: a token for which there is no room.
#include <algorithm>

#include "base/text.h"
#include "validate/inspection.h"

namespace kvtide {
namespace {

// Whether every later token was written over the one before: the position stopped at the last slot.
void look_at_the_last_slot(const Inspection& in, const HeldRows& held, Finding& found) {
  const HeldRows& right = in.golden.rows[0];
  const Pos last = held.first + held.rows - 1;
  Pos best = last;
  double best_distance = 1e30;
  for (Pos t = 0; t < static_cast<Pos>(in.tokens.size()); ++t) {
    double distance = 0.0;
    for (std::int64_t head = 0; head < right.kv_heads; ++head)
      distance += likeness(held.value(head, last), right.value(head, t)).relative();
    if (distance < best_distance) best_distance = distance, best = t;
  }
  // The rows before it are still the right ones: only the last slot is used again and again.
  const auto differs = [&](Pos slot) {
    bool other = false;
    for (std::int64_t head = 0; head < right.kv_heads; ++head)
      other = other || !alike(likeness(held.value(head, slot), right.value(head, slot)), in.options.row_gate);
    return other;
  };
  bool only_last = last + 1 < static_cast<Pos>(in.tokens.size()) && differs(last);
  for (Pos slot = held.first; slot < last && only_last; ++slot) only_last = !differs(slot);
  const bool known = best > last && best_distance < 0.5 * static_cast<double>(right.kv_heads);
  if (only_last || known) {
    found.cause = "position_saturates";
    found.layer = 0;
    found.what += cat("; in layer 0 slot ", last, ", the last one, holds ",
                      known ? cat("the values of token ", best) : "what is no longer its token's",
                      only_last ? ", the slots before it are right" : "", ": the position stopped at ", last,
                      " and every later token is written over the one before");
    found.advice =
        "The position must not be clamped to the last slot: refuse the token, or make room before it is "
        "read.";
  }
}

}  // namespace

// A state that is asked for more tokens than it has room for.
void check_capacity(Inspection& in) {
  const auto all = static_cast<std::int64_t>(in.tokens.size());
  const std::int64_t capacity = all - std::max<std::int64_t>(2, all / 4);
  RunOptions options;
  options.capacity = capacity;
  const Run full = run(in.model, in.tokens, calls_of(1, all), options);
  if (full.tokens == capacity) {
    in.add_check("a full state", Outcome::passed,
                 cat("token ", capacity, " is refused: ", quoted(full.refusal, 120)));
    return;
  }
  if (full.tokens < capacity) {
    in.add_check("a full state", Outcome::failed,
                 cat("refused after ", full.tokens, " of ", capacity, " tokens"));
    in.report.findings.push_back(state_finding(
        "capacity", "a full state", {std::nullopt, full.tokens},
        cat("a state with room for ", capacity, " tokens refused token ", full.tokens, ": ", full.refusal),
        "The room of a state is the number of tokens it was made for."));
    return;
  }
  // It read on. Fine, if it is right.
  const Run& roomy = in.chained.front();
  const auto vocab = static_cast<std::size_t>(in.shape.vocab);
  std::optional<Pos> wrong;
  for (std::size_t i = 0; i < full.known.size() && i < roomy.known.size() && !wrong; ++i)
    if (!same_numbers(std::span(full.logits).subspan(i * vocab, vocab),
                      std::span(roomy.logits).subspan(i * vocab, vocab)))
      wrong = full.known[i];
  if (!wrong) {
    in.add_check("a full state", Outcome::passed,
                 cat(all, " tokens read with room for ", capacity, ", as with more"));
    return;
  }
  in.add_check("a full state", Outcome::failed,
               cat("token ", *wrong, " is read without room for it, and differs"));
  Finding found = state_finding(
      "capacity", "a full state", {std::nullopt, *wrong},
      cat("a state with room for ", capacity, " tokens took ", all, " without a word, and from token ",
          *wrong, " on gives something else than a larger one"),
      "A full state must refuse the next token.");
  if (in.judges_rows() && !full.rows.empty() && full.rows[0].rows > 0)
    look_at_the_last_slot(in, full.rows[0], found);
  in.report.findings.push_back(std::move(found));
}

}  // namespace kvtide
