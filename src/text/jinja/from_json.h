// from_json.h: values of JSON as values of a template.
#pragma once

#include <memory>

#include "base/json/json_value.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

// Texts and keys are marked as given when `is_given`. Throws Error(invalid_argument) for what lies too deep.
Value from_json(const JsonValue& json, bool is_given = false);

// The members of an object as the variables of a template: what `messages`, `tools` and `documents` hold was given,
// but for the roles of messages, which templates write into their markup. A role of other characters than letters,
// digits, '_' and '-' counts as given.
std::shared_ptr<Mapping> variables_from_json(const JsonValue& object);
// A role counts as given unless it is a plain word.
bool is_plain_word(std::string_view role);

}  // namespace kvtide::jinja
