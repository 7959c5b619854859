#include "tensor/element_type.h"

#include "kvtide/error.h"

namespace kvtide {

const char* element_type_name(ElementType type) noexcept {
  constexpr const char* kNames[] = {"f16", "f32", "q8_0", "i32", "q4_0"};
  return kNames[static_cast<int>(type)];
}

DType row_dtype(ElementType type) {
  if (type == ElementType::i32)
    throw Error(ErrorCode::invalid_argument, "keys and values are kept as f32, f16, q8_0 or q4_0, not i32");
  return type == ElementType::f16    ? DType::f16
         : type == ElementType::f32  ? DType::f32
         : type == ElementType::q4_0 ? DType::q4_0
                                     : DType::q8_0;
}

ElementType element_type_of(DType dtype) noexcept {
  return dtype == DType::f16    ? ElementType::f16
         : dtype == DType::f32  ? ElementType::f32
         : dtype == DType::q4_0 ? ElementType::q4_0
                                : ElementType::q8_0;
}

std::optional<ElementType> row_type_from_name(std::string_view name) noexcept {
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::q8_0, ElementType::q4_0})
    if (name == element_type_name(type)) return type;
  return std::nullopt;
}

}  // namespace kvtide
