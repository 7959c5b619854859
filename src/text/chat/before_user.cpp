#include "text/chat/before_user.h"

#include <algorithm>

namespace kvtide {

std::vector<TokenId> ids_before_user(const FirstMessage& conversation) {
  // A token that both begin with was not changed by what the user says.
  std::vector<TokenId> one = conversation("a");
  const std::vector<TokenId> other = conversation("1");
  one.erase(std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first, one.end());
  return one;
}

}  // namespace kvtide
