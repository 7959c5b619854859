// weight.h: a constant matrix that activations are multiplied with, and the product itself.
//
// Plain weights become panels of sixteen outputs side by side (tensor/panel.h), of fp16 or fp32 as they were; compressed ones
// stay as small as they are and are decoded tile by tile: integers with scales as panels, too, all others where they lie. An output is one sum over k from 0 to the end in f32, whatever the number of
// rows, threads or the kernel table, and the same for compressed weights as for the dense ones they stand for.
// Ownership: a Weight owns its panels, or shares its Compressed.
// Thread rules: const from any thread; multiply uses the Runtime's threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/buffer.h"
#include "base/function_ref.h"
#include "coreml/run/compressed.h"
#include "coreml/run/integer_panels.h"
#include "coreml/run/runtime.h"

namespace kvtide::coreml {

// How the constant lies: an output's weights side by side (linear, conv), or those of one input (matmul).
enum class WeightOrder { outputs_first, inputs_first };

class Weight {
 public:
  // Panels of a constant of fp16 or fp32 with outputs * inputs elements.
  Weight(Runtime& run, const Tensor& dense, std::int64_t outputs, std::int64_t inputs, WeightOrder order);
  Weight(Runtime& run, CompressedPtr packed, std::int64_t outputs, std::int64_t inputs, WeightOrder order);

  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }
  std::int64_t bytes() const;

  // Inputs [k0, k1) of outputs 16 panel ..: [k1 - k0][16]. In `decoded`, or where they lie.
  const float* slice(const Kernels& kernels, std::int64_t panel, std::int64_t k0, std::int64_t k1,
                     float* decoded) const;
  // Where the `inputs` behind input k of a panel lie, which may be the next panel's; empty where nothing lies in panels.
  std::span<const std::byte> stored_behind(std::int64_t panel, std::int64_t k, std::int64_t inputs) const;
  // One element block of the constant as it was, for those who look rows up in it: [first, first + count) of output `row`.
  void row(const Kernels& kernels, std::int64_t output, float* out) const;

 private:
  std::int64_t outputs_, inputs_;
  WeightOrder order_;
  DataType dtype_ = DataType::none;  // of the panels; none: compressed
  Buffer panels_;
  CompressedPtr packed_;
  std::unique_ptr<const IntegerPanels> integers_;  // of what is packed
};

// sums: up to 16 outputs from `output` on of row `row`.
using TakeSums = FunctionRef<void(std::int64_t row, std::int64_t output, float* sums, int count)>;
// x: [rows][inputs]. `take` is called for every row and panel once, from any thread; sums may be changed in place.
void multiply(Runtime& run, const Weight& weight, const float* x, std::int64_t rows, TakeSums take);

}  // namespace kvtide::coreml
