// check_splits.h: whether it makes a difference how a text is cut into calls: what lint cannot read from a program.
//
// A text of nine tokens is read one by one, and again as 5 + 1 + 3 tokens; a package that takes no call of 2 to 5 reads a text
// that is longer than its smallest larger call. Logits where both stop, and the states behind the text, have to agree. A call of
// several tokens that writes other rows, sees later tokens, or counts wrongly shows here.
// Errors: those of decoder.h.
// Thread rules: one caller.
#pragma once

#include <vector>

#include "coreml/decode/decoder.h"
#include "coreml/lint/finding.h"

namespace kvtide::coreml {

// Of what logits or a state reach from the least to the most: roundings of f16 add up to a fifth of it.
inline constexpr float kSplitTolerance = 0.02f;

std::vector<Finding> check_splits(Decoder& decoder);
// Of a package or folder; what cannot be driven is a finding, too.
std::vector<Finding> check_splits(const std::string& path, const CoremlOptions& options);

}  // namespace kvtide::coreml
