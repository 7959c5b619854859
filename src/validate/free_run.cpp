#include <algorithm>

#include "base/text.h"
#include "validate/inspection.h"
#include "validate/logits_check.h"

namespace kvtide {
namespace {

TokenId likeliest_token(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The model writes: the prompt in one call or a few, then token by token.
std::vector<TokenId> written_by(Inspection& in, std::span<const TokenId> prompt, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(prompt.size());
  const auto state = in.model.make_state(size + count + 8);
  RunOptions options;
  options.want_rows = false;
  const std::int64_t chunk = in.shape.largest_chunk > 0 ? std::min(in.shape.largest_chunk, size) : size;
  Schedule schedule{"", {}};
  for (std::int64_t left = size; left > 0; left -= schedule.calls.back())
    schedule.calls.push_back(std::min(chunk, left));
  Run last = run_on(in.model, *state, prompt, schedule, options, 0);
  std::vector<TokenId> out;
  const auto vocab = static_cast<std::size_t>(in.shape.vocab);
  while (last.refusal.empty() && last.logits.size() >= vocab) {
    out.push_back(likeliest_token(std::span(last.logits).last(vocab)));
    if (static_cast<std::int64_t>(out.size()) == count) break;
    last = run_on(in.model, *state, std::span(out).last(1), {"", {1}}, options,
                  size + static_cast<std::int64_t>(out.size()) - 1);
  }
  return out;
}

// The reference of what was written; where a router took the other expert of a near tie, along that one.
Golden reference_of(Inspection& in, std::span<const TokenId> all) {
  Golden golden = in.reference.run(all);
  if (golden.ties.empty() || golden.hidden.empty() || !in.judges_layers()) return golden;
  RunOptions options;
  options.want_rows = false;
  Schedule ones{"", std::vector<std::int64_t>(all.size(), 1)};
  const Run read = run(in.model, all, ones, options);
  if (read.tokens < static_cast<std::int64_t>(all.size())) return golden;
  const Course plain{std::make_shared<const Golden>(std::move(golden)), {}, {}};
  return *follow(in.reference, all, plain, read, in.options.gate).golden;
}

}  // namespace

void check_free_run(Inspection& in) {
  const char* name = "free running";
  if (in.options.free_tokens < 1) {
    in.add_check(name, Outcome::skipped, "not asked for");
    return;
  }
  in.step(0.9, name);
  const bool fixed = in.reference.text().has_value();
  const std::vector<TokenId> known = in.reference.continuation();
  if (fixed && known.empty()) {
    in.add_check(name, Outcome::skipped, "the reference knows no continuation");
    return;
  }
  const auto prompt = fixed ? in.tokens : in.tokens.first(std::min(kFreePrompt, in.tokens.size() / 2));
  const auto count = fixed ? static_cast<std::int64_t>(known.size()) : in.options.free_tokens;
  const std::vector<TokenId> written = written_by(in, prompt, count);

  std::optional<std::size_t> first;
  double preferred = 0.0;
  if (fixed) {
    for (std::size_t i = 0; i < written.size() && !first; ++i)
      if (written[i] != known[i]) first = i;
  } else {
    // The reference reads what was written: up to the first difference that is what it would have written.
    std::vector<TokenId> all(prompt.begin(), prompt.end());
    all.insert(all.end(), written.begin(), written.end());
    const Golden golden = reference_of(in, all);
    const auto vocab = static_cast<std::size_t>(golden.vocab);
    if (golden.logits.empty()) {
      in.add_check(name, Outcome::skipped, "the reference has no logits");
      return;
    }
    for (std::size_t i = 0; i < written.size() && !first; ++i) {
      const auto row = std::span(golden.logits).subspan((prompt.size() + i - 1) * vocab, vocab);
      const TokenId wanted = likeliest_token(row);
      preferred = static_cast<double>(row[static_cast<std::size_t>(wanted)] -
                                      row[static_cast<std::size_t>(written[i])]);
      if (wanted != written[i]) first = i;
    }
  }
  if (!first && static_cast<std::int64_t>(written.size()) == count) {
    in.add_check(name, Outcome::passed, cat(count, " greedy tokens are the reference's"));
    return;
  }
  if (!first) {
    in.add_check(name, Outcome::failed, cat("stopped after ", written.size(), " of ", count, " tokens"));
    return;
  }
  // A near tie may fall either way in coarser arithmetic.
  // A router's may, too, and then the text goes another way.
  const bool coarse = in.options.gate < 0.999 || !in.golden.ties.empty();
  // Where routers hesitate in coarse arithmetic, what is written says nothing that logits have not said.
  const bool tie = fixed ? coarse : coarse_routers(in) || preferred < (coarse ? 1.0 : 0.05);
  in.add_check(
      name, tie ? Outcome::passed : Outcome::failed,
      cat("greedy tokens part at token ", *first, " of ", count,
          fixed ? "" : cat(", which the reference would have written otherwise by ", preferred, " nats")));
}

}  // namespace kvtide
