// element_type.h: the public element types (kvtide/types.h) as types of the inside and as words.
//
// A DType is any type that a file or a kernel has, by its number in GGUF; an ElementType is one of the few that a
// caller can ask for.
#pragma once

#include <optional>
#include <string_view>

#include "kvtide/types.h"
#include "tensor/dtype.h"

namespace kvtide {

// Of rows of keys and values, and of recurrent tensors. Throws Error(invalid_argument) for i32, which neither has.
DType row_dtype(ElementType type);
ElementType element_type_of(DType dtype) noexcept;  // of f32, f16, q8_0 and q4_0

// By the names of element_type_name: "f16", as on the command line. nullopt: not one that rows have.
std::optional<ElementType> row_type_from_name(std::string_view name) noexcept;

}  // namespace kvtide
