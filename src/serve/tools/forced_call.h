// forced_call.h: a call that an answer must make: how it begins, and the grammar of the rest.
//
// Pure functions.
#pragma once

#include <string>

#include "serve/tools/tool_calls.h"
#include "serve/tools/tool_request.h"
#include "text/grammar/pattern.h"

namespace kvtide::serve {

struct ForcedCall {
  std::string begun;         // markup at the end of the prompt
  grammar::Grammar grammar;  // of the answer: one call, of the tool that the request names or of any
};

// Throws as grammar_of_schema, for the parameters of the tools.
ForcedCall force_call(const ToolRequest& tools, ToolFormat format);

}  // namespace kvtide::serve
