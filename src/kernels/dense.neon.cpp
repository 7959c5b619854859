#include "kernels/dense.h"
#include "kernels/lanes.neon.h"

#include "kernels/dense.inl"

namespace kvtide {

extern const DenseRow kDenseNeon{.isa = "neon",
                                 .dots = &dots,
                                 .mix = &mix,
                                 .soften = &soften,
                                 .weigh = &weigh,
                                 .add_squares = &add_squares,
                                 .add_losses = &add_losses,
                                 .widen = &widen,
                                 .numbers_of_q8_0 = &numbers_of_q8_0,
                                 .numbers_of_q4_0 = &numbers_of_q4_0,
                                 .round_to_q4_0 = &round_to_q4_0,
                                 .factor = &factor,
                                 .round_in_turn = &round_in_turn};

}  // namespace kvtide
