// tokenizer_json.h: the parts of a tokenizer.json as a VocabSpec. Every component that is not known is
// refused by its name: a step left out would change ids in silence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json/json_value.h"
#include "text/vocab.h"

namespace kvtide {

// The result refers to the texts of `json`. `notes` receives what was left out. Throws Error: bad_format,
// unsupported.
VocabSpec read_tokenizer_json(const JsonValue& json, const std::string& file, std::int64_t size,
                              std::vector<std::string>& notes);

}  // namespace kvtide
