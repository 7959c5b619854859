// layer_block.h: a part of a layer: adds to the residual stream what it makes of it. layer_blocks.h lists those of a layer.
//
// Thread rules: one caller.
#pragma once

#include <cstdint>
#include <span>

#include "model/active_part.h"

namespace kvtide {

class LayerBlock {
 public:
  virtual ~LayerBlock() = default;

  // Of the rows of every part, which together are `count`. The first `skip` are left out of the sum; what they leave in
  // the states is not.
  virtual void run(int layer, std::span<ActivePart> parts, std::int64_t skip, std::int64_t count) = 0;
};

}  // namespace kvtide
