// folder_tokenizer.h: a tokenizer for packages that bring none: of a Hugging Face folder (tokenizer.json, and config.json if it is
// there) or of a GGUF file.
//
// Errors: not_found, bad_format, unsupported.
// Thread rules: any thread.
#pragma once

#include <string>

#include "kvtide/tokenizer.h"

namespace kvtide::coreml {

Tokenizer tokenizer_of(const std::string& path);

}  // namespace kvtide::coreml
