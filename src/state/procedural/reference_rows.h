// reference_rows.h: recent queries as they would stand in the future of a text: the judges of a block.
#pragma once

#include <vector>

#include "state/procedural/references.h"
#include "state/procedural/spec.h"
#include "state/procedural/summarise.h"

namespace kvtide {

// A block of zeros for `rows` rows of `dim` elements.
BlockRows padded_block(std::int64_t rows, std::int64_t dim);

// Turns a row (query or key) by so many positions.
void turn_row(float* row, const std::vector<double>& frequencies, Pos by);

// The queries at `positions` of all heads that share KV head `head`, head after head. Reference i is placed
// 2^(12 u_i) positions ahead of a text of `position` tokens, u the van der Corput sequence: judged where they
// stood, rows far ahead would be misjudged.
ReferenceRows ask_ahead(const ProceduralSpec& spec, const References& references,
                        const std::vector<Pos>& positions, Pos position, int layer, int head,
                        std::int64_t padded_dim);

}  // namespace kvtide
