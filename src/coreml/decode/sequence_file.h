// sequence_file.h: what a decoder has read, as a safetensors file in the form of `kvtide state export --layout per-layer`.
//
// So a text that was read by one runs on with the other: `kvtide state export` and `import` turn the same file into a snapshot of
// the model and back, and packages of one model with states of another length take it, too. The file names the model; rows of
// another model are refused.
// Errors: not_found, bad_format (what the file holds), invalid_argument (rows of another model), context_full, unsupported, io.
// Thread rules: one caller.
#pragma once

#include <string>

#include "coreml/decode/decoder.h"

namespace kvtide::coreml {

void save_sequence(const Decoder& decoder, const std::string& path);
// All of its tokens but the last `again`, which are to be read once more: their logits are not in the file.
std::vector<TokenId> load_sequence(Decoder& decoder, const std::string& path, std::int64_t again);

}  // namespace kvtide::coreml
