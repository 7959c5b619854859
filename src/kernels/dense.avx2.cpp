#include "kernels/dense.h"
#include "kernels/lanes.avx2.h"

#include "kernels/dense.inl"

namespace kvtide {

extern const DenseRow kDenseAvx2{.isa = "avx2",
                                 .dots = &dots,
                                 .mix = &mix,
                                 .soften = &soften,
                                 .add_squares = &add_squares,
                                 .add_losses = &add_losses,
                                 .widen = &widen,
                                 .add_distances = &add_distances};

}  // namespace kvtide
