// kv_type.h: the types that keys and values may be kept in, as element types and as words.
#pragma once

#include <optional>
#include <string_view>

#include "kvtide/types.h"
#include "tensor/dtype.h"

namespace kvtide {

DType kv_dtype(KvType type) noexcept;
KvType kv_type_of(DType dtype) noexcept;  // of f32, f16 and q8_0

std::string_view kv_type_name(KvType type) noexcept;  // "f16", as on the command line
std::optional<KvType> kv_type_from_name(std::string_view name) noexcept;

}  // namespace kvtide
