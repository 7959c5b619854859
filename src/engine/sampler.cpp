#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "engine/most_likely.h"
#include "kvtide/error.h"
#include "kvtide/generate.h"

namespace kvtide {
namespace {

void check(bool fine, const char* name, const char* range, double value) {
  if (!fine) throw Error(ErrorCode::invalid_argument, cat(name, " must be ", range, ", not ", value));
}

// The place of the largest logit.
std::size_t checked_highest(std::span<const float> logits) {
  if (const std::size_t bad = first_bad(logits); bad < logits.size())
    throw Error(ErrorCode::numeric,
                cat("the logit of token ", bad, " is ", logits[bad], "; it must be a number"));
  const std::size_t place = highest(logits);
  if (logits.empty() || logits[place] == -std::numeric_limits<float>::infinity())
    throw Error(ErrorCode::numeric, "no token is possible: every logit is minus infinity");
  return place;
}

// Each token counts once.
void penalise(std::span<float> logits, std::span<const TokenId> recent, float penalty) {
  for (const TokenId id : std::unordered_set<TokenId>(recent.begin(), recent.end())) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size())
      throw Error(
          ErrorCode::invalid_argument,
          cat("token id ", id, " among the recent tokens is outside the vocabulary of ", logits.size()));
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0.0f ? logit / penalty : logit * penalty;
  }
}

// Logits in the order of most_likely(), of which mostly the first few are asked for.
class Ordered {
 public:
  Ordered(std::span<const float> logits, std::size_t count) : logits_(logits), count_(count) {}

  const Candidate& operator[](std::size_t i) {
    constexpr std::size_t kFirst = 64;
    while (i >= found_.size())
      found_ = most_likely(logits_, std::min(count_, std::max(kFirst, 16 * found_.size())));
    return found_[i];
  }

 private:
  std::span<const float> logits_;
  std::size_t count_;
  std::vector<Candidate> found_;
};

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  const auto& o = options_;
  check(o.temperature >= 0.0f && o.temperature <= 1e6f, "temperature", "between 0 and 1e6", o.temperature);
  check(o.top_k >= 0, "top-k", "at least 0", o.top_k);
  check(o.top_p > 0.0f && o.top_p <= 1.0f, "top-p", "above 0 and at most 1", o.top_p);
  check(o.min_p >= 0.0f && o.min_p <= 1.0f, "min-p", "between 0 and 1", o.min_p);
  check(o.repeat_penalty > 0.0f && o.repeat_penalty <= 1e3f, "the repeat penalty", "above 0 and at most 1000",
        o.repeat_penalty);
  check(o.repeat_last >= 0, "the number of tokens under the repeat penalty", "at least 0", o.repeat_last);
}

TokenId Sampler::pick(std::span<const float> logits, std::span<const TokenId> recent) try {
  std::size_t top = checked_highest(logits);
  std::vector<float> penalised;
  if (options_.repeat_penalty != 1.0f) {
    penalised.assign(logits.begin(), logits.end());
    const std::size_t last = std::min(recent.size(), static_cast<std::size_t>(options_.repeat_last));
    penalise(penalised, recent.last(last), options_.repeat_penalty);
    logits = penalised;
    top = highest(logits);
  }
  if (options_.temperature == 0.0f) return static_cast<TokenId>(top);

  const std::size_t kept =
      options_.top_k > 0 ? std::min(logits.size(), static_cast<std::size_t>(options_.top_k)) : logits.size();
  Ordered likely(logits, kept);
  const auto most = static_cast<double>(logits[top]);
  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - most) / options_.temperature);
  };
  double total = 0.0;
  if (kept == logits.size())  // in the order of ids, so that nothing has to be sorted for it
    for (const float logit : logits) total += weight(logit);
  else
    for (std::size_t i = 0; i < kept; ++i) total += weight(likely[i].logit);

  // Most likely first, so both cuts keep a beginning of the list, and always its first token.
  double sum = 0.0;
  std::size_t end = 0;
  if (options_.top_p == 1.0f && options_.min_p == 0.0f) {
    sum = total;
    end = kept;
  }
  for (; end < kept; ++end) {
    const double next = weight(likely[end].logit);
    if (end > 0 && !(sum < options_.top_p * total && next >= options_.min_p)) break;
    sum += next;
  }

  // 53 random bits in [0, 1): the standard library's distributions differ between implementations.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  for (std::size_t i = 0; i + 1 < end; ++i) {
    left -= weight(likely[i].logit);
    if (left < 0.0) return likely[i].id;
  }
  return likely[end - 1].id;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
