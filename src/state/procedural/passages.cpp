#include "state/procedural/passages.h"

#include <algorithm>
#include <cmath>

namespace kvtide {

std::vector<double> rarity_of_passages(std::span<const TokenId> tokens) {
  if (tokens.empty()) return {};
  std::vector<double> of_token(static_cast<std::size_t>(*std::max_element(tokens.begin(), tokens.end())) + 1);
  for (const TokenId token : tokens) ++of_token[static_cast<std::size_t>(token)];
  for (double& times : of_token)
    if (times > 0.0) times = std::log(static_cast<double>(tokens.size()) / times);
  const std::size_t count = tokens.size() / kPassage;
  std::vector<double> own(count, 0.0);
  for (std::size_t i = 0; i < count * kPassage; ++i)
    own[i / kPassage] += of_token[static_cast<std::size_t>(tokens[i])] / static_cast<double>(kPassage);
  std::vector<double> rarity = own;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    const double both = (own[i] + own[i + 1]) / 2.0;
    rarity[i] = std::max(rarity[i], both);
    rarity[i + 1] = std::max(rarity[i + 1], both);
  }
  return rarity;
}

}  // namespace kvtide
