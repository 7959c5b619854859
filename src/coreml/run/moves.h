// moves.h: elements moved from one place to another, whatever their type: transposing, strided slices.
#pragma once

#include "coreml/run/runtime.h"

namespace kvtide::coreml {

// to: elements of `shape` without gaps; element [i0, i1, ..] comes from from[first + i0 steps[0] + i1 steps[1] ..]. Both have one
// type. Steps may be 0 or negative.
void copy_strided(Runtime& run, const Tensor& from, std::int64_t first, const Shape& shape,
                  const Shape& steps, const Tensor& to);
// The other way round: elements of `from`, which has `shape`, go to such places of `to`.
void scatter_strided(Runtime& run, const Tensor& from, const Shape& shape, const Shape& steps,
                     const Tensor& to, std::int64_t first);

Shape steps_of(const Shape& shape);  // in elements, of a tensor without gaps

}  // namespace kvtide::coreml
