// choice.h: from the options of a procedural memory, all filled in (ladder.h), to what it is made from.
//
// Pure functions of a memory's shape: its layers, their heads and element types, without a procedural part.
#pragma once

#include "state/spec/spec.h"

namespace kvtide {

// What a procedural memory needs to know of the attention that reads it.
struct AttentionShape {
  int query_heads = 0;  // of a layer
  float scale = 0.0f;   // of q.k
  Pos trained = 0;      // positions that the model was trained for
};

// How rows of the past are stored, full heads apart: what was chosen, or what follows for this shape.
RowType row_type_for(const KvSpec& shape, const AttentionShape& attention, const ProceduralOptions& options);

// What these options, filled in, mean for the layers that see everything; layers with a window keep it. Throws
// Error(invalid_argument) naming the option that does not fit the shape.
ProceduralSpec procedural_spec(const KvSpec& shape, const AttentionShape& attention,
                               const ProceduralOptions& options);

}  // namespace kvtide
