#include "tensor/kv_type.h"

namespace kvtide {

DType kv_dtype(KvType type) noexcept {
  return type == KvType::f16 ? DType::f16 : type == KvType::f32 ? DType::f32 : DType::q8_0;
}

KvType kv_type_of(DType dtype) noexcept {
  return dtype == DType::f16 ? KvType::f16 : dtype == DType::f32 ? KvType::f32 : KvType::q8_0;
}

std::string_view kv_type_name(KvType type) noexcept { return dtype_info(kv_dtype(type)).name; }

std::optional<KvType> kv_type_from_name(std::string_view name) noexcept {
  for (const KvType type : {KvType::f32, KvType::f16, KvType::q8_0})
    if (name == kv_type_name(type)) return type;
  return std::nullopt;
}

}  // namespace kvtide
