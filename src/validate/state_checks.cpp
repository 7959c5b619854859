#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "validate/inspection.h"

namespace kvtide {
namespace {

constexpr float kPoison = 3e4f;  // large, and still a finite f16

Schedule ones(std::int64_t tokens) {
  return {"calls of 1", std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 1)};
}

// Tokens behind the middle of the text: what something that happened there leaves shows in the first few.
constexpr std::int64_t kTail = 12;

// The text in two parts: half of it in a few calls, something that must not matter, and some more tokens one by
// one.
class TwoParts {
 public:
  explicit TwoParts(Inspection& in)
      : in_(in),
        half_(static_cast<std::int64_t>(in.tokens.size()) / 2),
        tail_(in.tokens.subspan(
            static_cast<std::size_t>(half_),
            static_cast<std::size_t>(std::min(kTail, static_cast<std::int64_t>(in.tokens.size()) - half_)))) {
    options_.want_rows = false;
    const auto state = begin();
    straight_ = rest(*state);
  }

  std::int64_t half() const { return half_; }
  Schedule head() const {
    Schedule out{"", {}};
    std::int64_t call = (half_ + 3) / 4;
    if (in_.shape.largest_chunk > 0) call = std::min(call, in_.shape.largest_chunk);
    for (std::int64_t left = half_; left > 0; left -= out.calls.back())
      out.calls.push_back(std::min(call, left));
    return out;
  }
  std::int64_t room() const { return 2 * static_cast<std::int64_t>(in_.tokens.size()) + 8; }

  std::unique_ptr<TestedState> begin() {
    auto state = in_.model.make_state(room());
    require(run_on(in_.model, *state, in_.tokens, head(), options_, 0));
    return state;
  }
  Run rest(TestedState& state) {
    return run_on(in_.model, state, tail_, ones(static_cast<std::int64_t>(tail_.size())), {}, half_);
  }
  // The same, but `other` reads something else behind the first token: what the two share then shows.
  Run rest_beside(TestedState& state, TestedState& other) {
    const Run first = run_on(in_.model, state, tail_.first(1), ones(1), {}, half_);
    read_other(other, std::min<std::int64_t>(4, half_), 0, 1);
    const Run second = run_on(in_.model, state, tail_.subspan(1),
                              ones(static_cast<std::int64_t>(tail_.size()) - 1), {}, half_ + 1);
    return joined(first, second, in_.layers(), in_.shape.width);
  }
  void read_other(TestedState& state, std::int64_t count, std::int64_t kind, std::int64_t chunk) {
    const std::vector<TokenId> tokens = other_tokens(count, kind);
    Schedule schedule{"", {}};
    for (std::int64_t left = count; left > 0; left -= schedule.calls.back())
      schedule.calls.push_back(std::min(chunk, left));
    require(run_on(in_.model, state, tokens, schedule, options_, half_));
  }
  std::vector<TokenId> other_tokens(std::int64_t count, std::int64_t kind) const {
    std::vector<TokenId> out;
    for (std::int64_t i = 0; i < count; ++i)
      out.push_back(static_cast<TokenId>(
          (in_.tokens[static_cast<std::size_t>(half_ - 1 - i % half_)] + 1 + 3 * kind + i) %
          in_.shape.vocab));
    return out;
  }

  // The first of the later tokens whose result is not that of reading straight on; nullopt: none.
  std::optional<Pos> first_change(const Run& run) const { return first_change(run, straight_); }
  std::optional<Pos> first_change(const Run& run, const Run& wanted) const {
    std::optional<Pos> first;
    const auto vocab = static_cast<std::size_t>(in_.shape.vocab);
    if (run.tokens != wanted.tokens) return half_ + run.tokens;
    for (std::size_t i = 0; i < wanted.known.size() && !first; ++i)
      if (!same_numbers(std::span(run.logits).subspan(i * vocab, vocab),
                        std::span(wanted.logits).subspan(i * vocab, vocab)))
        first = wanted.known[i];
    return first;
  }
  // The layer and token where it begins.
  std::pair<std::optional<int>, Pos> where(const Run& run, const Run& wanted) const {
    if (in_.shape.gives_hidden)
      for (std::int64_t layer = 0; layer < in_.layers(); ++layer)
        for (Pos t = 0; t < std::min(run.tokens, wanted.tokens); ++t)
          if (!same_numbers(run.stream(layer + 1, t, in_.shape.width),
                            wanted.stream(layer + 1, t, in_.shape.width)))
            return {static_cast<int>(layer), half_ + t};
    return {std::nullopt, first_change(run, wanted).value_or(half_)};
  }
  // Rows that a layer wrote otherwise than when reading straight on. A row is made from what enters the layer
  // and from what is carried to it, never from other rows.
  std::int64_t rows_changed(const Run& run, int layer) const {
    if (run.rows.empty() || straight_.rows.empty()) return 0;
    const HeldRows& a = run.rows[static_cast<std::size_t>(layer)];
    const HeldRows& b = straight_.rows[static_cast<std::size_t>(layer)];
    std::int64_t count = 0;
    for (Pos t = std::max(half_, b.first); t < std::min(a.first + a.rows, b.first + b.rows); ++t)
      for (std::int64_t head = 0; head < b.kv_heads; ++head)
        count += !same_numbers(a.key(head, t), b.key(head, t)) ||
                 !same_numbers(a.value(head, t), b.value(head, t));
    return count;
  }
  const Run& straight() const { return straight_; }

 private:
  static void require(const Run& run) {
    if (!run.refusal.empty()) throw Error(ErrorCode::invalid_argument, run.refusal);
  }
  Inspection& in_;
  std::int64_t half_;
  std::span<const TokenId> tail_;
  RunOptions options_;
  Run straight_;
};

void check_poison(Inspection& in, TwoParts& parts) {
  const auto state = parts.begin();
  in.model.poison(*state, kPoison);
  const Run after = parts.rest(*state);
  const auto changed = parts.first_change(after);
  in.add_check("poison", changed ? Outcome::failed : Outcome::passed,
               changed ? cat("rows behind the newest token change token ", *changed)
                       : "rows behind the newest token change nothing");
  if (changed)
    in.report.findings.push_back(state_finding(
        "stale_rows", "poison", parts.where(after, parts.straight()),
        cat("after ", parts.half(), " tokens every row that no token has written was filled with ", kPoison,
            ", and what comes out at token ", *changed, " changed: rows behind the newest token are seen"),
        "The mask must hide every slot that is not written yet; what such a slot holds may not matter."));
}

void check_rollback(Inspection& in, TwoParts& parts) {
  std::vector<std::int64_t> distances = {1};
  for (const std::int64_t chunk : in.options.chunks)
    if (in.shape.largest_chunk == 0 || chunk <= in.shape.largest_chunk) distances.push_back(chunk);
  std::sort(distances.begin(), distances.end());
  distances.erase(std::unique(distances.begin(), distances.end()), distances.end());
  for (const std::int64_t distance : distances) {
    const auto behind = [&](std::int64_t kind) {
      const auto state = parts.begin();
      parts.read_other(*state, distance, kind, distance);
      in.model.truncate(*state, parts.half());
      return parts.rest(*state);
    };
    const Run first = behind(0);
    const auto changed = parts.first_change(first);
    if (!changed) continue;
    const Run second = behind(1);
    const bool depends = parts.first_change(first, second).has_value();
    const auto where = parts.where(first, parts.straight());
    const bool history = depends && where.first && parts.rows_changed(first, *where.first) > 0;
    const bool several = distance > 1;
    in.add_check("taking tokens back", Outcome::failed,
                 cat("after ", distance, several ? " tokens were" : " token was",
                     " read and taken back, token ", *changed, " differs"));
    std::string what = cat(distance, several ? " other tokens were" : " other token was", " read after ",
                           parts.half(), " and taken back; what then comes out at token ", *changed,
                           " is not what a state gives that never saw ", several ? "them" : "it");
    if (!depends)
      what += cat(", whatever ", several ? "those tokens were" : "that token was");
    else if (history)
      what += cat(", and the rows that layer ", *where.first, " writes then depend on what was taken back: ",
                  "something is carried from token to token beside the rows and did not go back");
    else
      what += ", and it depends on what was taken back: rows that were taken back are still seen";
    in.report.findings.push_back(state_finding(
        history   ? "history_not_rolled_back"
        : depends ? "stale_rows"
                  : "rollback",
        "taking tokens back", where, std::move(what),
        history
            ? "What is carried beside the rows (a convolution's history, a delayed value) must go back with "
              "the position."
        : depends ? "The number of visible slots must go back with the position; the mask must be built from "
                    "the position, not from what was ever written."
                  : "Taking tokens back must leave a state that equals one which never saw them."));
    return;
  }
  in.add_check("taking tokens back", Outcome::passed,
               cat("1 to ", distances.back(), " tokens leave no trace"));
}

void check_copies(Inspection& in, TwoParts& parts) {
  for (const bool snapshot : {false, true}) {
    const char* name = snapshot ? "snapshot" : "fork";
    if (snapshot ? !in.shape.snapshots : !in.shape.forks) {
      in.add_check(name, Outcome::skipped, "this model cannot");
      continue;
    }
    std::optional<Pos> changed;
    for (const bool judges_copy : {true, false}) {
      const auto state = parts.begin();
      const auto copy = snapshot ? in.model.through_snapshot(*state) : in.model.fork(*state);
      TestedState &judged = judges_copy ? *copy : *state, &beside = judges_copy ? *state : *copy;
      const Run after = parts.rest_beside(judged, beside);
      changed = parts.first_change(after);
      if (!changed) continue;
      const char* which = judges_copy ? "a copy" : "the original";
      in.add_check(name, Outcome::failed, cat(which, " goes on differently at token ", *changed));
      in.report.findings.push_back(state_finding(
          snapshot ? "snapshot" : "state_shared_between_sequences", name,
          parts.where(after, parts.straight()),
          cat("a copy of the state was made after ", parts.half(), " tokens by a ", name, "; ", which,
              " goes on differently from token ", *changed, " while the other one reads something else"),
          snapshot ? "Compare what is saved with what the state holds: rows, position and whatever is "
                     "carried beside them."
                   : "A fork must own its rows from the first one it writes, and so must the original."));
      break;
    }
    if (!changed)
      in.add_check(name, Outcome::passed, "a copy and the original go on alike, whatever the other reads");
  }
}

void check_two_sequences(Inspection& in, TwoParts& parts) {
  const auto one = in.model.make_state(parts.room()), two = in.model.make_state(parts.room());
  const std::vector<TokenId> others = parts.other_tokens(parts.half(), 2);
  RunOptions options;
  options.want_rows = false;
  Pos at = 0;
  for (const std::int64_t count : parts.head().calls) {
    const auto first = static_cast<std::size_t>(at), size = static_cast<std::size_t>(count);
    const Schedule call{"", {count}};
    run_on(in.model, *one, in.tokens.subspan(first, size), call, options, at);
    run_on(in.model, *two, std::span(others).subspan(first, size), call, options, at);
    at += count;
  }
  const Run after = parts.rest(*one);
  const auto changed = parts.first_change(after);
  in.add_check("two sequences", changed ? Outcome::failed : Outcome::passed,
               changed ? cat("one changes the other at token ", *changed) : "one does not touch the other");
  if (changed)
    in.report.findings.push_back(
        state_finding("state_shared_between_sequences", "two sequences", parts.where(after, parts.straight()),
                      cat("two sequences were read in turn, each with a state of its own, and token ",
                          *changed, " of one depends on the other"),
                      "make_state must give every sequence memory of its own."));
}

}  // namespace

Finding state_finding(std::string cause, std::string check, const std::pair<std::optional<int>, Pos>& where,
                      std::string what, std::string advice) {
  Finding out;
  out.cause = std::move(cause);
  out.check = std::move(check);
  out.layer = where.first;
  out.token = where.second;
  out.what = std::move(what);
  out.advice = std::move(advice);
  return out;
}

void check_state(Inspection& in) {
  const auto attempt = [&](const char* name, bool can, auto&& body) {
    if (!can) {
      in.add_check(name, Outcome::skipped, "this model cannot");
      return;
    }
    try {
      body();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled || error.code() == ErrorCode::out_of_memory) throw;
      in.add_check(name, Outcome::failed, error.message());
      in.report.findings.push_back(state_finding("refused", name, {std::nullopt, 0},
                                                 cat("the model threw an error: ", error.message()),
                                                 "What the model says it can do must work."));
    }
  };
  std::optional<TwoParts> parts;
  try {
    parts.emplace(in);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled || error.code() == ErrorCode::out_of_memory) throw;
    in.add_check("state", Outcome::failed, error.message());
    return;
  }
  in.step(0.78, "poison");
  attempt("poison", in.shape.poisons, [&] { check_poison(in, *parts); });
  in.step(0.8, "taking tokens back");
  attempt("taking tokens back", in.shape.truncates, [&] { check_rollback(in, *parts); });
  in.step(0.85, "copies");
  attempt("copies", true, [&] { check_copies(in, *parts); });
  attempt("two sequences", true, [&] { check_two_sequences(in, *parts); });
  in.step(0.88, "a full state");
  attempt("a full state", in.shape.keeps_capacity, [&] { check_capacity(in); });
}

}  // namespace kvtide
