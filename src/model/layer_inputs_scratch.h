// layer_inputs_scratch.h: rows of a pass for what only some models have beside the usual halves of a layer, f32.
#pragma once

namespace kvtide {

struct LayerInputsScratch {
  float* values;  // [n][layers][layer_inputs]: what tokens give to the layers
  float* gates;   // [n][layer_inputs]
};

// Of experts beside a feed-forward.
struct BesideScratch {
  float* routed;  // [n][width]: what the router sees
  float* output;  // [n][width]: of the feed-forward
};

}  // namespace kvtide
