// constants.h: constants of a program as slots: tensors, strings, or numbers that stay packed.
//
// 64-bit numbers become 32-bit ones and bf16 becomes fp32, as no tensor has them; a number that does not fit is refused. What is
// smaller than a byte, and what a constexpr operation describes, stays packed.
#pragma once

#include <functional>
#include <string_view>

#include "coreml/run/call.h"

namespace kvtide::coreml {

// Throws Error(bad_format, unsupported) naming what is wrong with the value.
Slot constant_slot(const Value& value);

bool is_constexpr(std::string_view type);
// One slot for each result. `find` gives the constant that a name stands for, nullptr when there is none.
std::vector<Slot> constexpr_slots(const Operation& operation,
                                  const std::function<const Slot*(const std::string&)>& find,
                                  const Kernels& kernels);
// A slot's elements, whatever form they have.
CompressedPtr packed_form(const Slot& slot);
// The slot as a tensor.
void make_dense(Slot& slot, const Kernels& kernels);

}  // namespace kvtide::coreml
