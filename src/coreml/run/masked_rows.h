// masked_rows.h: rows of a state that a write mask chooses, written where the state lies.
//
// Exports for processors without addresses write a state as old * kept + mask x rows: `mask` [1, 1, S, T] has a 1 where a row goes,
// and `kept` [1, 1, S, 1] a 0 there. That touches all S rows for each row that is new. One step does the same to the rows that
// change: those that are not kept whole, or that the mask gives something.
// The results are those of the three operations, but for a zero that was negative, and stays so.
// Thread rules: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "coreml/program/program.h"
#include "coreml/run/operations.h"

namespace kvtide::coreml {

// Operands: the state as it was, kept, mask, rows. No program can name it.
OperationRow masked_rows_operation();

// What takes the place of the step `write` of steps: itself, when it does not write a state in this way.
struct MaskedWrite {
  std::size_t scaled = 0, chosen = 0, sum = 0;  // steps: the product with kept, that with the mask, their sum
  int old = 0, kept = 0, mask = 0, rows = 0;    // slots
};
// `maker`: of each slot the step that makes it; `uses`: how many steps look at it; `types`: as the program declares them.
std::optional<MaskedWrite> masked_write_of(const std::vector<Step>& steps, std::size_t write,
                                           const std::vector<int>& maker, const std::vector<int>& uses,
                                           const std::vector<ValueType>& types,
                                           const std::vector<Slot>& slots);

}  // namespace kvtide::coreml
