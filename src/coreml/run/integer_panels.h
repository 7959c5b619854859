// integer_panels.h: a matrix of scaled integers as panels of sixteen outputs, as small as it was.
//
// Integers of 8 bits lie [inputs][16]; of those of 4 bits two inputs share a byte, the first in the lower half. An element is scale
// * integer, rounded to the type of the matrix: the numbers that the chain of compressed.h gives, bit for bit, and sixteen at a
// time.
// Ownership: owns its integers and scales.
// Thread rules: const from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "coreml/run/compressed.h"
#include "coreml/run/runtime.h"

namespace kvtide::coreml {

class IntegerPanels {
 public:
  // nullptr: the elements are not of this kind.
  static std::unique_ptr<const IntegerPanels> of(Runtime& run, const Compressed& matrix, std::int64_t outputs,
                                                 std::int64_t inputs);

  // Inputs [k0, k1) of outputs 16 panel ..: [k1 - k0][16]; k0 is even.
  void decode(const Kernels& kernels, std::int64_t panel, std::int64_t k0, std::int64_t k1, float* out) const;
  std::int64_t bytes() const;

 private:
  IntegerPanels() = default;
  void pack(const Kernels& kernels, const Compressed& matrix, const Compressed& integers,
            std::int64_t outputs, std::int64_t panel);

  int bits_ = 8;
  bool rounds_ = true;  // to f16
  std::int64_t inputs_ = 0, run_ = 0, panel_bytes_ = 0;
  Buffer integers_;
  std::vector<float> scales_;  // [panels][inputs / run_][16]
};

}  // namespace kvtide::coreml
