#include "engine/overflow.h"

#include "base/stopwatch.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {

const char* overflow_name(Overflow overflow) noexcept {
  switch (overflow) {
    case Overflow::stop:
      return "stop";
    case Overflow::rolling:
      return "rolling";
    case Overflow::refill:
      return "refill";
  }
  return "unknown";
}

std::vector<TokenId> tokens_to_refill(std::span<const TokenId> tokens, std::int64_t capacity,
                                      std::int64_t pinned) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (pinned < 0 || pinned > capacity - 2)
    throw Error(ErrorCode::invalid_argument,
                cat("a refill that always keeps the first ", pinned, " tokens needs a context of at least ",
                    pinned + 2, ", not ", capacity));
  if (count < capacity)
    throw Error(ErrorCode::invalid_argument,
                cat("nothing to refill: ", count, " tokens were read and ", capacity, " fit"));
  const auto newest = static_cast<std::size_t>((capacity - pinned) / 2);
  const auto first = tokens.first(static_cast<std::size_t>(pinned)), last = tokens.last(newest);
  std::vector<TokenId> kept(first.begin(), first.end());
  kept.insert(kept.end(), last.begin(), last.end());
  return kept;
}

Refill refill(Session& session, std::int64_t pinned, const std::function<bool(std::int64_t)>& progress) {
  const Stopwatch watch;
  const std::vector<TokenId> kept = tokens_to_refill(session.tokens(), session.context(), pinned);
  Refill done;
  done.position = session.position();
  done.kept = static_cast<std::int64_t>(kept.size());
  done.dropped = session.rows() - done.kept;
  session.clear();
  ReadOptions read;
  read.need_logits = false;
  read.progress = progress;
  session.read(kept, read);
  done.milliseconds = watch.ms();
  return done;
}

}  // namespace kvtide
