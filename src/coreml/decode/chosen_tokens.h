// chosen_tokens.h: heads that choose: they give the likeliest token of each part of the vocabulary, and its logit.
//
// ANEMLL writes them when it is asked for argmax in the model: argmax_idx (int32) counts within the part, argmax_val is the
// logit. The parts have the sizes of meta.yaml's lm_head_chunk_sizes, or vocab_size is shared out evenly, the first parts getting one more
// where it does not go into them.
// Errors: unsupported (outputs that do not fit each other or the sizes), bad_format (a token outside its part).
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coreml/decode/meta_yaml.h"
#include "kvtide/coreml.h"

namespace kvtide::coreml {

bool chooses_tokens(const CoremlFunction& function);

// One number for each token of the vocabulary. Those that were not chosen have a number below all that were, so the largest is where
// it belongs; how far the others lie below is not known.
std::vector<float> logits_of_chosen(const std::map<std::string, CoremlArray>& outputs,
                                    const VocabularyParts& vocabulary, const std::string& package);

}  // namespace kvtide::coreml
