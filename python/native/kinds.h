// kinds.h: the types that keys and values are kept in, by the names that Python uses.
#pragma once

#include <string>

#include "kvtide/error.h"
#include "kvtide/types.h"

namespace kvtide::python {

inline KvType kv_type(const char* what, const std::string& name) {
  if (name == "f16") return KvType::f16;
  if (name == "f32") return KvType::f32;
  if (name == "q8_0") return KvType::q8_0;
  throw Error(ErrorCode::invalid_argument,
              std::string(what) + " must be 'f16', 'f32' or 'q8_0', not '" + name + "'");
}

inline std::string kv_type_name(KvType type) {
  return type == KvType::f16 ? "f16" : type == KvType::f32 ? "f32" : "q8_0";
}

}  // namespace kvtide::python
