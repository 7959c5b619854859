// compare_weights.h: a folder of shards beside the model that it should hold: shape, rotation, vocabulary, and
// every weight.
//
// Thread rules: one caller at a time.
#pragma once

#include <string>

#include "kvtide/validate.h"
#include "validate/plain_weights.h"

namespace kvtide {

// Adds the checks "manifest" and "weights" and their findings.
void compare_weights(ValidationReport& report, const std::string& folder, const PlainWeights& shards,
                     const PlainWeights& model);

// The manifest's tokens of beginning and end beside those of the tokenizer in the folder: the check
// "vocabulary".
void compare_vocabulary(ValidationReport& report, const std::string& folder);

}  // namespace kvtide
