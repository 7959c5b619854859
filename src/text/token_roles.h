// token_roles.h: what the text of a token says about it, where the type that the file gives is not enough.
#pragma once

#include <string_view>

namespace kvtide {

// Tokens that end a text or a turn in the models that kvtide knows, whatever id they have.
bool is_end_marker(std::string_view token);

// Tokens that structure a chat. Some files mark them as user-defined text; as text they would let a message
// end its own turn, so they are treated as control tokens: names in <|...|>, and the turn markers of Gemma.
bool is_control_like(std::string_view token);

}  // namespace kvtide
