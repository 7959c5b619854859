// constants.h: what a constant must be, whichever form it was read from.
//
// Thread rules: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coreml/program/program.h"

namespace kvtide::coreml {

// Why a constant is none, or nothing: its bytes and strings must be what its type and shape need.
std::string fault_of(const Value& value);

// A whole number as an element of `dtype`, appended; false: it does not fit, or elements below a byte were asked for.
bool append_whole(std::vector<std::byte>& bytes, DataType dtype, std::int64_t number);

// A value takes the bytes and keeps them.
void own_bytes(Value& value, std::vector<std::byte> bytes);

}  // namespace kvtide::coreml
