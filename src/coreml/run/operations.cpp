#include "coreml/run/operations.h"

#include <utility>

namespace kvtide::coreml {

OperationTable operation_table() {
  OperationTable table;
  for (auto* family : {&binary_operations, &unary_operations, &shape_operations, &slice_operations,
                       &gather_operations, &reduce_operations, &order_operations, &linear_operations,
                       &attention_operations, &normalise_operations, &state_operations})
    for (OperationRow& row : (*family)()) table.emplace(row.type, std::move(row));
  return table;
}

}  // namespace kvtide::coreml
