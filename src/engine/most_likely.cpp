#include "engine/most_likely.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace kvtide {
namespace {

bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// So many logits are looked at together: where none of them is large enough, none is looked at alone.
constexpr std::size_t kTogether = 256;

// Minus infinity where nothing is a number.
float largest(std::span<const float> logits) {
  // One maximum would have to wait for itself at every number.
  constexpr std::size_t kLanes = 16;
  float most[kLanes];
  std::fill(std::begin(most), std::end(most), -std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) most[lane] = std::max(most[lane], logits[i + lane]);
  for (; i < logits.size(); ++i) most[0] = std::max(most[0], logits[i]);
  return *std::max_element(std::begin(most), std::end(most));
}

std::span<const float> part(std::span<const float> logits, std::size_t first) {
  return logits.subspan(first, std::min(kTogether, logits.size() - first));
}

}  // namespace

std::size_t first_bad(std::span<const float> logits) {
  const auto is_bad = [](float logit) { return !(logit <= std::numeric_limits<float>::max()); };
  std::uint32_t bad = 0;  // compilers make vectors of a loop that has one way out
  for (const float logit : logits) bad |= is_bad(logit);
  if (bad == 0) return logits.size();
  return static_cast<std::size_t>(std::find_if(logits.begin(), logits.end(), is_bad) - logits.begin());
}

std::size_t highest(std::span<const float> logits) {
  std::size_t best = 0;
  float most = -std::numeric_limits<float>::infinity();
  for (std::size_t first = 0; first < logits.size(); first += kTogether)
    if (const float here = largest(part(logits, first)); here > most) {
      most = here;
      best = first;
    }
  const auto place = std::find(logits.begin() + static_cast<std::ptrdiff_t>(best), logits.end(), most);
  return place == logits.end() ? 0 : static_cast<std::size_t>(place - logits.begin());
}

std::vector<Candidate> most_likely(std::span<const float> logits, std::size_t count) {
  count = std::min(count, logits.size());
  std::vector<Candidate> found(count);
  for (std::size_t i = 0; i < count; ++i) found[i] = {static_cast<TokenId>(i), logits[i]};
  if (count < logits.size() && count > 0) {
    // The least likely one of a heap is in front. Ids ascend: a later one of the same logit comes behind it.
    std::make_heap(found.begin(), found.end(), before);
    for (std::size_t first = count; first < logits.size(); first += kTogether) {
      const std::span<const float> together = part(logits, first);
      if (!(largest(together) > found.front().logit)) continue;
      for (std::size_t i = first; i < first + together.size(); ++i) {
        if (!(logits[i] > found.front().logit)) continue;
        std::pop_heap(found.begin(), found.end(), before);
        found.back() = {static_cast<TokenId>(i), logits[i]};
        std::push_heap(found.begin(), found.end(), before);
      }
    }
  }
  std::sort(found.begin(), found.end(), before);
  return found;
}

}  // namespace kvtide
