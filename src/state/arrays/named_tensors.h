// named_tensors.h: what a list of named tensors says about the memory behind them. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvtide/named_state.h"
#include "state/arrays/layout.h"

namespace kvtide {

// A tensor and the rows that are behind it.
struct NamedTensor {
  TensorSpec spec;
  std::vector<LayoutBlock> blocks;  // of keys and values
  std::vector<int> layers;          // each once, ascending
  std::size_t sequence_axis = 0;    // of spec.shape
  std::size_t recurrent = 0;        // index into KvSpec::recurrent
  bool has_rows() const { return !blocks.empty(); }
};

struct NamedTensors {
  KvSpec memory;
  std::vector<NamedTensor> tensors;
};

// Throws Error(invalid_argument) naming the tensor that makes no sense or does not fit the others.
NamedTensors resolve(const StateSpec& spec);

// Rows of a tensor's array when the memory has this capacity.
std::int64_t array_capacity(const NamedTensor& tensor, std::int64_t capacity);
// Its shape then.
std::vector<std::int64_t> shape_at(const NamedTensor& tensor, std::int64_t capacity);
// Its bytes then.
std::int64_t array_bytes(const NamedTensor& tensor, std::int64_t capacity);

// "kv_cache f16 [36, 1, *, 256]" and so on: equal for states whose tensors hold the same things.
std::string signature(const NamedTensors& tensors);

}  // namespace kvtide
