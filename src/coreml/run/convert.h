// convert.h: elements of any type as the numbers that operations compute with, and back.
//
// Floats are computed in f32, whole numbers and booleans in int32. Going back rounds: f32 to fp16 to nearest even, f32 to whole
// numbers towards zero, whole numbers to fewer bits by their lowest bits, anything but 0 to true.
#pragma once

#include <cstdint>

#include "coreml/run/runtime.h"

namespace kvtide::coreml {

void load(const Kernels& kernels, const Tensor& from, std::int64_t first, std::int64_t n, float* to);
void load(const Kernels& kernels, const Tensor& from, std::int64_t first, std::int64_t n, std::int32_t* to);
void store(const Kernels& kernels, const float* from, std::int64_t n, const Tensor& to, std::int64_t first);
void store(const Kernels& kernels, const std::int32_t* from, std::int64_t n, const Tensor& to,
           std::int64_t first);

// All elements as f32: where they lie when they are, else a copy.
class Floats {
 public:
  Floats(Runtime& run, const Tensor& tensor);
  const float* data() const { return held_.as<const float>(); }
  float operator[](std::int64_t i) const { return data()[i]; }

 private:
  Tensor held_;
};

// Room for a result in f32; `store` rounds it to the tensor's own type. A tensor of fp32 is written at once.
class FloatResult {
 public:
  FloatResult(Runtime& run, const Tensor& tensor);
  float* data() const { return held_.as<float>(); }
  void store();

 private:
  Runtime& run_;
  Tensor out_, held_;
};

}  // namespace kvtide::coreml
