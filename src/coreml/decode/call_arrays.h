// call_arrays.h: the arrays that a call of a language model takes and gives.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvtide/coreml.h"
#include "kvtide/types.h"

namespace kvtide::coreml {

// Numbers as i32 or f32, whichever of them converts to the type of the input.
CoremlArray numbers_for(const CoremlFeature& feature, std::vector<std::int64_t> shape,
                        std::span<const float> numbers);
CoremlArray ids_array(std::vector<std::int64_t> shape, std::span<const TokenId> ids);
// [1, 1, tokens, length] of 0 and minus infinity: token i sees the columns up to first + i.
CoremlArray causal_mask(std::int64_t tokens, std::int64_t first, std::int64_t length);
// Of f16 and f32; empty for other types.
std::vector<float> as_floats(const CoremlArray& array);
// The last row of an output, as f32: logits of the newest token.
std::vector<float> last_row(const CoremlArray& array, const std::string& name);

}  // namespace kvtide::coreml
