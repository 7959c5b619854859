// matmul_vnni.avx2.cpp: matrix products with AVX2 and AVX-VNNI, dot products of bytes in 256 bits (matmul_lanes.avx2.h).
#include "kernels/matmul_lanes.avx2.h"

// Behind the operations on which it is written.
#include "kernels/matmul_tuned.inl"
#include "kernels/matmul_unpacked.inl"

namespace kvtide {

extern constinit const MatmulRow kMatmulAvxVnni{unpacked_row("avx_vnni")};

}  // namespace kvtide
