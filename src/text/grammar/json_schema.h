// json_schema.h: a grammar of the JSON that a schema describes.
//
// Everything that the grammar lets through fits the schema, with the members of an object in the schema's order (oneOf is
// read as anyOf). It may leave out some that would fit, such as members that the schema does not name.
// Pure functions.
#pragma once

#include <string_view>

#include "base/json/json_value.h"
#include "text/grammar/pattern.h"

namespace kvtide::grammar {

// Throws Error(unsupported) that names the keyword that is not supported, and Error(invalid_argument) for what is no schema.
// `place`: of the schema, for messages.
Grammar grammar_of_schema(const JsonValue& schema, std::string_view place);
// A JSON object of any kind.
Grammar grammar_of_any_object();
// The same as a part of another grammar: adds rules, and gives what stands for the schema.
Pattern add_schema(Grammar& grammar, const JsonValue& schema, std::string_view place);

}  // namespace kvtide::grammar
