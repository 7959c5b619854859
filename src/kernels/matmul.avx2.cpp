// matmul.avx2.cpp: matrix products with AVX2 and FMA (matmul_lanes.avx2.h).
#include "kernels/matmul_lanes.avx2.h"

// Behind the operations on which it is written.
#include "kernels/matmul_tuned.inl"
#include "kernels/matmul_unpacked.inl"

namespace kvtide {

extern constinit const MatmulRow kMatmulAvx2{unpacked_row("avx2")};

}  // namespace kvtide
