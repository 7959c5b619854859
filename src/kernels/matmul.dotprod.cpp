// matmul.dotprod.cpp: matrix products with the dot products of bytes that FEAT_DotProd adds to Advanced SIMD.
#include "kernels/matmul_kernel.h"
#include "kernels/matmul_strips.neon.h"

namespace kvtide {
namespace {

using DotRows = RowCounts<8, 4, 2, 1>;

template <int V, int M>
using Products = Dots<V, M>;
template <int V, int M>
using ByteProducts = Dots<V, M>;

}  // namespace
}  // namespace kvtide

// Behind the products on which it is written.
#include "kernels/matmul_strips.inl"

namespace kvtide {

extern constinit const MatmulRow kMatmulDotprod{tuned_row("dotprod")};

}  // namespace kvtide
