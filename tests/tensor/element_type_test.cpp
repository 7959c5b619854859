#include "tensor/element_type.h"

#include <gtest/gtest.h>

#include "kvtide/error.h"

namespace kvtide {
namespace {

TEST(ElementType, OfRowsIsATypeOfTheInsideAndAWord) {
  for (const ElementType type : {ElementType::f16, ElementType::f32, ElementType::q8_0, ElementType::q4_0}) {
    EXPECT_EQ(element_type_of(row_dtype(type)), type);
    EXPECT_EQ(row_type_from_name(element_type_name(type)), type);
    EXPECT_EQ(dtype_info(row_dtype(type)).name, element_type_name(type));
  }
  EXPECT_STREQ(element_type_name(ElementType::q8_0), "q8_0");
  EXPECT_EQ(row_type_from_name("q4_1"), std::nullopt);
}

TEST(ElementType, NoRowIsAWholeNumber) {
  EXPECT_STREQ(element_type_name(ElementType::i32), "i32");
  EXPECT_EQ(row_type_from_name("i32"), std::nullopt);
  try {
    row_dtype(ElementType::i32);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "keys and values are kept as f32, f16, q8_0 or q4_0, not i32");
  }
}

}  // namespace
}  // namespace kvtide
