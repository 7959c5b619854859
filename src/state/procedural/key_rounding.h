// key_rounding.h: keys in four bits, rounded so that queries see little of it.
//
// A key that is off by e changes the score of a query q by q.e. The mean square of that over many queries is e^T H e, with H
// the mean of q q^T. Elements are rounded one after the other, and each makes up for what those before it are off, as far as queries
// ask for both: with H = (I + U) D (I + U)^T, U above the diagonal, element k is rounded from x_k - sum over j < k of
// e_j U_jk. About half of the squared error is left (docs/procedural_measurements.md). Sources: Frantar et al., GPTQ, 2022,
// and Chee et al., QuIP, 2023, who round weights so.
// Ownership: holds its own numbers. Thread rules: immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "state/procedural/block_rows.h"

namespace kvtide {

class KeyRounding {
 public:
  // By queries as they are asked of the rows of a block, and by its keys: what a head looks for in order to copy is like the
  // key that it finds. mean: of keys, transformed, which is taken off them; or empty. Without queries nothing is known.
  KeyRounding(const Kernels& kernels, const ReferenceRows& asked, const BlockRows& block,
              std::span<const float> mean);

  // rows: [count][dim], transformed. blocks: these rows in q4_0, whose scales stay.
  void improve(const std::vector<float>& rows, std::byte* blocks) const;

 private:
  const Kernels& kernels_;
  std::int64_t dim_;            // a multiple of 32
  std::vector<float> minus_u_;  // [dim][dim]; empty: nothing is known
};

}  // namespace kvtide
