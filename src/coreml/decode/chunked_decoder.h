// chunked_decoder.h: functions infer and prefill of fixed lengths over one state, in one package or in several: embeddings,
// chunks of layers, head (ANEMLL).
#pragma once

#include <memory>
#include <string>

#include "coreml/decode/decoder.h"

namespace kvtide::coreml {

// The packages that a meta.yaml names, beside it. Errors: those of decoder.h; not_found and bad_format of the file.
std::unique_ptr<Decoder> open_chunked_decoder(const std::string& meta, const CoremlOptions& options);
// One package that goes from ids to logits.
std::unique_ptr<Decoder> open_single_chunk(const std::string& path, const CoremlOptions& options);

}  // namespace kvtide::coreml
