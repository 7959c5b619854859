// row_rewriter.h: rows of one element type as rows of another.
//
// Rows of four bits are Hadamard transforms (kernels/hadamard.h), and so are those beside them. Pure; from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kvtide {

class RowRewriter {
 public:
  struct Type {
    DType dtype = DType::f16;
    bool spread = false;  // as transforms
  };
  RowRewriter(const Type& from, const Type& to, std::int64_t dim) : from_(from), to_(to), dim_(dim) {}

  void operator()(const std::byte* source, std::byte* target) const;

 private:
  Type from_, to_;
  std::int64_t dim_;
};

}  // namespace kvtide
