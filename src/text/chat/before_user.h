// before_user.h: what a chat template writes before anything that the user says: the system message, tools, its own words.
//
// Pure functions.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

// The ids of a conversation whose only message of the user is this text.
using FirstMessage = std::function<std::vector<TokenId>(std::string_view user)>;

// The ids that conversations begin with whatever the user says; empty: none.
std::vector<TokenId> ids_before_user(const FirstMessage& conversation);

}  // namespace kvtide
