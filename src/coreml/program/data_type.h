// data_type.h: what a DataType is called and how much room its elements take.
//
// Names are those of MIL's text and of the operation cast: "fp16", "int32", "bool".
// Thread rules: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "coreml/program/program.h"

namespace kvtide::coreml {

std::string_view name_of(DataType type);  // "none" for a number that is no type
std::optional<DataType> data_type_named(std::string_view name);

int bits_of(DataType type);  // of one element as it is stored; 0: a string, none

// Of `elements` one after another: those below a byte are one bit stream.
inline std::size_t bytes_for(DataType type, std::size_t elements) {
  return (elements * static_cast<std::size_t>(bits_of(type)) + 7) / 8;
}

// How many elements a shape has; nullopt: a dimension is not known, or it is more than a size can say.
std::optional<std::size_t> elements_of(const Shape& shape);

}  // namespace kvtide::coreml
