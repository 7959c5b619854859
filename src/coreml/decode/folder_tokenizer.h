// folder_tokenizer.h: the tokenizer of a Hugging Face folder, for packages that bring none: tokenizer.json, and config.json if it
// is there.
//
// Errors: not_found, bad_format, unsupported.
// Thread rules: any thread.
#pragma once

#include <string>

#include "kvtide/tokenizer.h"

namespace kvtide::coreml {

Tokenizer tokenizer_of(const std::string& folder);

}  // namespace kvtide::coreml
