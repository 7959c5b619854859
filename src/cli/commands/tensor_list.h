// tensor_list.h: the tensors of a model file, as `kvtide inspect` prints them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvtide {

struct ListedTensor {
  std::string name, type;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
};

// A line for each kind: tensors whose names differ only in a number (of the layer, of the expert) and which have the same
// type and shape. `all`: a line for each tensor.
std::string tensor_lines(const std::vector<ListedTensor>& tensors, bool all);

}  // namespace kvtide
