// residual.h: where the output of half a block joins the residual stream with scales and offsets of both.
//
// x = (y + output_offset) * output_scale + (x + residual_offset) * residual_scale, element by element. Plain
// data; empty vectors: the usual sum.
#pragma once

#include <cstdint>
#include <vector>

namespace kvtide {

struct ResidualScale {
  std::vector<float> output_scale, output_offset, residual_scale, residual_offset;  // [width]
  bool empty() const { return output_scale.empty(); }
};

inline void merge_scaled(const ResidualScale& s, const float* y, float* x) {
  for (std::size_t i = 0; i < s.output_scale.size(); ++i)
    x[i] =
        (y[i] + s.output_offset[i]) * s.output_scale[i] + (x[i] + s.residual_offset[i]) * s.residual_scale[i];
}

}  // namespace kvtide
