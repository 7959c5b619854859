// state_rows.h: the rows of a state, one by one, by layer, head and position.
//
// Ownership: refers to the state, which must not change while this lives. Thread rules: const members from
// any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvtide/state.h"
#include "state/state.h"

namespace kvtide {

class StateRows {
 public:
  explicit StateRows(const KvState& state);

  const StateImage& image() const { return image_; }
  DType dtype(KvPart part) const;

  // Positions that a layer holds, ascending.
  const std::vector<PosRange>& runs(int layer) const;
  // The row as it is stored; empty when the layer does not hold it.
  std::span<const std::byte> row(int layer, int head, KvPart part, Pos position) const;
  // The row as floats [head_dim]; false when the layer does not hold it.
  bool read(int layer, int head, KvPart part, Pos position, float* out) const;

 private:
  // One piece of memory: the rows of one run of one head.
  struct Piece {
    PosRange rows;
    std::vector<ConstRowSpan> keys, values;  // per head
  };
  StateImage image_;
  std::vector<std::vector<Piece>> layers_;
};

}  // namespace kvtide
