// procedural.h: what a procedural memory needs to know of a model.
#pragma once

#include "model/config/config.h"
#include "state/spec/spec.h"

namespace kvtide {

// The spec for the layers of `config` that see everything; layers with a window keep it. Throws
// Error(invalid_argument) naming the option that does not fit the model.
ProceduralSpec procedural_spec(const ModelConfig& config, const ProceduralOptions& options);

// The options with every zero filled in: by the budget, or by the balanced preset. base: the spec without the
// procedural part. Throws Error(invalid_argument) when the budget is too small, naming the smallest that
// works.
ProceduralOptions filled_in(const ModelConfig& config, const KvSpec& base, const ProceduralOptions& options);

// The options that a memory was made with, as far as they can be seen in it: its head table cannot.
ProceduralOptions options_of(const ProceduralSpec& spec);

}  // namespace kvtide
