// longrope.h: rotations with two sets of divisors, one for short texts and one for long ones.
//
// Which one holds is chosen when a model is loaded, by the longest text that it is to see, and stays: rows that are in a
// memory were rotated by it. (transformers changes the set when a text grows past the original context, which leaves
// older keys rotated by the other one; llama.cpp chooses by the context, as here.)
// Source: LongRoPE (Ding et al. 2024), as published with Phi 3.
#pragma once

#include <cstdint>

#include "base/json/json_fields.h"
#include "formats/gguf.h"
#include "model/config/config.h"

namespace kvtide {

// From `short_factor`, `long_factor` and the contexts. original: where the object does not say it; 0: nowhere.
void read_longrope(const JsonFields& rope, const ModelConfig& config, double original, RopeConfig& out);
// From the tensors rope_factors_short and rope_factors_long, where a file has them.
void read_longrope(const GgufFile& file, ModelConfig& config);

// Takes the divisors for short texts when `context` (0: what the model was trained for) lies within the original one,
// which is then the model's context. Does nothing to rotations without a choice.
void choose_rotation(ModelConfig& config, std::int64_t context);

}  // namespace kvtide
