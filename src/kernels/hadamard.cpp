#include "kernels/hadamard.h"

#include <cmath>

namespace kvtide {

void hadamard(float* x, std::int64_t n) noexcept {
  const std::int64_t part = n & -n;
  for (std::int64_t step = 1; step < part; step *= 2)
    for (std::int64_t i = 0; i < n; i += 2 * step)
      for (std::int64_t j = i; j < i + step; ++j) {
        const float a = x[j], b = x[j + step];
        x[j] = a + b;
        x[j + step] = a - b;
      }
  const float scale = 1.0f / std::sqrt(static_cast<float>(part));
  for (std::int64_t i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace kvtide
