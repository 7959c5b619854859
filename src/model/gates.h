// gates.h: the functions that gates and the steps of recurrences go through, one number at a time.
#pragma once

#include <cmath>

namespace kvtide {

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace kvtide
