// reference_rows.h: recent queries as they would stand in the future of a text: the references of a block.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "state/procedural/block_rows.h"
#include "state/procedural/references.h"
#include "state/spec/procedural_spec.h"

namespace kvtide {

// Turns a row (query or key) by so many positions.
void turn_row(float* row, const std::vector<double>& frequencies, Pos by);

// Cosines, then sines of a turn by `by` positions, added at the end of `angles`.
void add_turn(const std::vector<double>& frequencies, Pos by, std::vector<float>& angles);

// Which references are asked and where they are placed. Reference i is moved to 2^(12 u_i) positions behind
// the end of the text, u the van der Corput sequence: a reference that stayed where it was would say nothing
// of how the block looks from far away.
struct AskedAhead {
  std::vector<Pos> positions;
  std::vector<float> cosine, sine;  // [positions][pairs] of the turn to where each is placed
};
AskedAhead place_ahead(const ProceduralSpec& spec, std::vector<Pos> positions, Pos position,
                       const std::vector<double>& frequencies);
// The same for every layer: layers that turn alike share one (pointers into `made`).
std::vector<const AskedAhead*> place_ahead(const ProceduralSpec& spec, const std::vector<Pos>& positions,
                                           Pos position, std::vector<AskedAhead>& made);

// The queries of all heads that share KV head `head`, head after head, turned to where they are placed.
ReferenceRows ask(const Kernels& kernels, const ProceduralSpec& spec, const References& references,
                  const AskedAhead& asked, int layer, int head, std::int64_t padded_dim);

}  // namespace kvtide
