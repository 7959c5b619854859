// memory_shape.h: what a memory has to know of a model: its layers, and how they are read.
#pragma once

#include "model/config/config.h"
#include "state/procedural/choice.h"
#include "state/spec/spec.h"

namespace kvtide {

// Layers, rotation, positions and what is carried from token to token; the rest is the caller's choice.
KvSpec memory_shape(const ModelConfig& config);

AttentionShape attention_shape(const ModelConfig& config);

}  // namespace kvtide
