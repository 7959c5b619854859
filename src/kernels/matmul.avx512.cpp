// matmul.avx512.cpp: matrix products with AVX-512 VNNI (matmul_lanes.avx512.h).
#include "kernels/matmul_lanes.avx512.h"

// Behind the operations on which it is written.
#include "kernels/matmul_tuned.inl"

namespace kvtide {

extern constinit const MatmulRow kMatmulAvx512{tuned_row("avx512")};

}  // namespace kvtide
