#include "state/rows/row_rewriter.h"

#include <cstring>

#include "kernels/attend_kernel.h"
#include "kernels/codec.h"
#include "kernels/hadamard.h"

namespace kvtide {

void RowRewriter::operator()(const std::byte* source, std::byte* target) const {
  if (from_.dtype == to_.dtype && from_.spread == to_.spread) {
    std::memcpy(target, source, static_cast<std::size_t>(dtype_bytes(to_.dtype, dim_)));
    return;
  }
  float row[kMaxHeadDim];
  decode_row(from_.dtype, source, dim_, row);
  if (from_.spread != to_.spread) hadamard(row, dim_);
  encode_row(to_.dtype, row, dim_, target);
}

}  // namespace kvtide
