// procedural.h: what a procedural memory needs to know of a model.
#pragma once

#include "model/config.h"
#include "state/procedural/spec.h"

namespace kvtide {

// The spec for the layers of `config` that see everything; layers with a window keep it. Throws
// Error(invalid_argument) naming the option that does not fit the model.
ProceduralSpec procedural_spec(const ModelConfig& config, const ProceduralOptions& options);

}  // namespace kvtide
