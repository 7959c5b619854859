#include "cli/optional/measured_losses.h"

#include <algorithm>
#include <cmath>

namespace kvtide {
namespace {

const MeasuredLosses* measured_nearest(std::string_view model_hash, Pos tokens) {
  const auto away = [&](const MeasuredLosses& one) {
    return std::abs(
        std::log(static_cast<double>(one.tokens) / static_cast<double>(std::max<Pos>(1, tokens))));
  };
  const MeasuredLosses* nearest = nullptr;
  for (const MeasuredLosses& one : measured_losses())
    if (one.model == model_hash && (nearest == nullptr || away(one) < away(*nearest))) nearest = &one;
  return nearest;
}

}  // namespace

std::optional<ExpectedLoss> expected_loss(std::string_view model_hash, Pos tokens, double share) {
  const auto all = measured_losses();
  if (all.empty()) return std::nullopt;
  const MeasuredLosses* own = measured_nearest(model_hash, tokens);
  const MeasuredLosses* found = own != nullptr ? own : measured_nearest(all.front().model, tokens);
  if (share < found->losses.front().share) return std::nullopt;
  const auto above = std::find_if(found->losses.begin(), found->losses.end(),
                                  [&](const MeasuredLoss& loss) { return loss.share >= share; });
  if (above == found->losses.begin() || above == found->losses.end()) {
    const MeasuredLoss& last = above == found->losses.end() ? found->losses.back() : *above;
    return ExpectedLoss{last.kl, last.perplexity, found, own != nullptr};
  }
  const MeasuredLoss& below = *(above - 1);
  const double along = std::log(share / below.share) / std::log(above->share / below.share);
  const auto between = [&](double a, double b) { return a + along * (b - a); };
  return ExpectedLoss{between(below.kl, above->kl), between(below.perplexity, above->perplexity), found,
                      own != nullptr};
}

}  // namespace kvtide
