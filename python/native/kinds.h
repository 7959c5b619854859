// kinds.h: the types that keys and values are kept in, by the names that Python uses.
#pragma once

#include <string>

#include "kvtide/error.h"
#include "kvtide/types.h"

namespace kvtide::python {

inline ElementType element_type(const char* what, const std::string& name) {
  if (name == "f16") return ElementType::f16;
  if (name == "f32") return ElementType::f32;
  if (name == "q8_0") return ElementType::q8_0;
  if (name == "q4_0") return ElementType::q4_0;
  throw Error(ErrorCode::invalid_argument,
              std::string(what) + " must be 'f16', 'f32', 'q8_0' or 'q4_0', not '" + name + "'");
}

}  // namespace kvtide::python
