// read_config.h: the shape of a model from what its file or folder says, by the architecture that it names.
#pragma once

#include "base/json/json_fields.h"
#include "formats/gguf.h"
#include "model/config/config.h"

namespace kvtide {

// Throws Error: unsupported (architecture, scaling), bad_format (a key that is missing, of the wrong type or
// out of range; the message names the key, its value and the range).
ModelConfig read_config(const GgufFile& file);
ModelConfig read_config(const JsonFields& json);

}  // namespace kvtide
