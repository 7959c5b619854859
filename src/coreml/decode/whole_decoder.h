// whole_decoder.h: a package that holds a whole model.
#pragma once

#include <memory>
#include <string>

#include "coreml/decode/decoder.h"

namespace kvtide::coreml {

// Errors: those of decoder.h.
std::unique_ptr<Decoder> open_whole_decoder(const std::string& path, const CoremlOptions& options);

}  // namespace kvtide::coreml
