// operations.h: the operations that programs may call, by name. One file for each family.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "coreml/run/call.h"

namespace kvtide::coreml {

// All of them, by name. A plan keeps the table that its steps point into.
using OperationTable = std::map<std::string_view, OperationRow>;
OperationTable operation_table();

using OperationRows = std::vector<OperationRow>;
OperationRows binary_operations();  // two or three tensors, broadcast
OperationRows unary_operations();   // one tensor, element by element
OperationRows shape_operations();   // the same elements elsewhere, or new ones from a shape
OperationRows slice_operations();
OperationRows gather_operations();  // gather, scatter
OperationRows reduce_operations();
OperationRows order_operations();      // topk, argsort, cumsum
OperationRows linear_operations();     // linear, matmul, conv, einsum
OperationRows attention_operations();  // scaled_dot_product_attention, softmax
OperationRows normalise_operations();
OperationRows state_operations();  // carried out by the executor itself

}  // namespace kvtide::coreml
