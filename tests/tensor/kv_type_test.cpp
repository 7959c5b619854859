#include "tensor/kv_type.h"

#include <gtest/gtest.h>

namespace kvtide {
namespace {

TEST(KvType, IsAnElementTypeAndAWord) {
  for (const KvType type : {KvType::f16, KvType::f32, KvType::q8_0}) {
    EXPECT_EQ(kv_type_of(kv_dtype(type)), type);
    EXPECT_EQ(kv_type_from_name(kv_type_name(type)), type);
  }
  EXPECT_EQ(kv_type_name(KvType::q8_0), "q8_0");
  EXPECT_EQ(kv_type_from_name("q4_0"), std::nullopt);
}

}  // namespace
}  // namespace kvtide
