#include "text/chat/before_user.h"

#include <algorithm>

namespace kvtide {

std::int64_t alike_at_first(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

std::vector<TokenId> ids_before_user(const FirstMessage& conversation) {
  // A token that both begin with was not changed by what the user says.
  std::vector<TokenId> one = conversation("a");
  one.resize(static_cast<std::size_t>(alike_at_first(one, conversation("1"))));
  return one;
}

}  // namespace kvtide
