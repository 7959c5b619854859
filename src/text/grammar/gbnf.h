// gbnf.h: grammars in the notation of llama.cpp.
//
//   root ::= "yes" | "no" | number
//   number ::= [0-9]+
//
// Read are texts, sets of characters, the dot, groups, |, *, +, ?, {m,n} and comments.
// Pure functions.
#pragma once

#include <string_view>

#include "text/grammar/pattern.h"

namespace kvtide::grammar {

// Throws Error(invalid_argument) that names the line; `place`: of the text, for messages.
Grammar grammar_of_gbnf(std::string_view text, std::string_view place);

}  // namespace kvtide::grammar
