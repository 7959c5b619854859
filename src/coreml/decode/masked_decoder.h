// masked_decoder.h: packages by the contract of the shards: one that holds a model, or a folder of several with a manifest.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coreml/decode/decoder.h"
#include "coreml/decode/masked_contract.h"

namespace kvtide::coreml {

// Of a package that goes from ids to logits and was opened already.
std::unique_ptr<Decoder> open_masked_decoder(const std::string& path, CoremlModel model,
                                             MaskedContract contract);
// The packages of a folder, in the order of its manifest. Errors: those of decoder.h; bad_format where the packages do not
// make one model.
std::unique_ptr<Decoder> open_masked_folder(const std::string& folder, const CoremlOptions& options);

}  // namespace kvtide::coreml
