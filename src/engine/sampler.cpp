#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "kvtide/generate.h"

namespace kvtide {
namespace {

struct Candidate {
  TokenId id;
  float logit;
};

void check(bool fine, const char* name, const char* range, double value) {
  if (!fine) throw Error(ErrorCode::invalid_argument, cat(name, " must be ", range, ", not ", value));
}

// More likely first; equal logits by id, so that the order is the same everywhere.
bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

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
  std::vector<Candidate> all(logits.size());
  bool possible = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] <= std::numeric_limits<float>::max()))
      throw Error(ErrorCode::numeric,
                  cat("the logit of token ", i, " is ", logits[i], "; it must be a number"));
    possible = possible || logits[i] > -std::numeric_limits<float>::infinity();
    all[i] = {static_cast<TokenId>(i), logits[i]};
  }
  if (!possible) throw Error(ErrorCode::numeric, "no token is possible: every logit is minus infinity");

  if (options_.repeat_penalty != 1.0f) {
    const std::size_t last = std::min(recent.size(), static_cast<std::size_t>(options_.repeat_last));
    const auto newest = recent.subspan(recent.size() - last);
    for (const TokenId id : std::unordered_set<TokenId>(newest.begin(), newest.end())) {
      if (id < 0 || static_cast<std::size_t>(id) >= all.size())
        throw Error(
            ErrorCode::invalid_argument,
            cat("token id ", id, " among the recent tokens is outside the vocabulary of ", all.size()));
      float& logit = all[static_cast<std::size_t>(id)].logit;
      logit = logit > 0.0f ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    }
  }
  if (options_.temperature == 0.0f) return std::min_element(all.begin(), all.end(), before)->id;

  std::size_t kept = all.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options_.top_k));
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(), before);
  all.resize(kept);

  std::vector<double> probability(kept);
  double total = 0.0;
  for (std::size_t i = 0; i < kept; ++i)
    total += probability[i] = std::exp(
        (static_cast<double>(all[i].logit) - static_cast<double>(all[0].logit)) / options_.temperature);
  // Most likely first, so both cuts keep a beginning of the list, and always its first token.
  double sum = 0.0;
  std::size_t end = 0;
  while (end < kept && (end == 0 || (sum < options_.top_p * total && probability[end] >= options_.min_p)))
    sum += probability[end++];

  // 53 random bits in [0, 1): the standard library's distributions differ between implementations.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  for (std::size_t i = 0; i + 1 < end; ++i) {
    left -= probability[i];
    if (left < 0.0) return all[i].id;
  }
  return all[end - 1].id;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
