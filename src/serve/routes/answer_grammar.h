// answer_grammar.h: what a request says that its answer must look like.
//
// Pure functions. nullopt: like anything. Throw Error: invalid_argument, unsupported (keywords of JSON schema by name).
#pragma once

#include <optional>
#include <string_view>

#include "serve/http/fields.h"
#include "text/grammar/pattern.h"

namespace kvtide::serve {

// {"type": "text" | "json_object" | "json_schema", ...}: response_format of chats, text.format of responses, output_format of
// messages. The schema stands in it, or in its member json_schema.
std::optional<grammar::Grammar> read_format(const std::optional<Fields>& format);
// "grammar" (GBNF) and "json_schema" of /completion.
std::optional<grammar::Grammar> read_llama_grammar(const Fields& fields);

}  // namespace kvtide::serve
