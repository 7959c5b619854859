// vocab_reader.h: the tokenizer's part of GGUF metadata (tokenizer.ggml.*) as a VocabSpec.
#pragma once

#include "formats/gguf.h"
#include "text/vocab.h"

namespace kvtide {

// Throws Error: bad_format (missing or inconsistent keys, ids out of range), unsupported (a tokenizer model
// kvtide does not know). The views of the result point into the file.
VocabSpec read_vocab(const GgufFile& file);

}  // namespace kvtide
