#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <string>

#include "kvtide/error.h"

namespace kvtide {
namespace {

TEST(Kernels, EndWithTheScalarTable_WhichEveryProcessorRuns) {
  const auto tables = available_kernels();
  ASSERT_FALSE(tables.empty());
  EXPECT_STREQ(tables.back()->isa, "scalar");
  EXPECT_EQ(&best_kernels(), tables.front());
}

TEST(Kernels, AreFoundByName_WithAllFamiliesOfTheSameInstructionSet) {
  for (const Kernels* table : available_kernels()) {
    EXPECT_EQ(&kernels_by_name(table->isa), table);
    // Its bf16 instructions are for attention alone.
    const std::string rest = table->isa == std::string("avx512_bf16") ? "avx512" : table->isa;
    EXPECT_EQ(table->matmul.isa, rest);
    EXPECT_STREQ(table->attend.isa, table->isa);
    EXPECT_EQ(table->elementwise.isa, rest);
    EXPECT_EQ(table->dense.isa, rest);
  }
}

TEST(Kernels, RefuseAnUnknownName_AndListWhatTheProcessorRuns) {
  for (const char* name : {"sse9", "", "AVX2", "scalar "}) try {
      kernels_by_name(name);
      ADD_FAILURE() << "accepted '" << name << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(error.message().find("it can run: "), std::string::npos) << error.message();
      for (const Kernels* table : available_kernels())
        EXPECT_NE(error.message().find(table->isa), std::string::npos) << error.message();
    }
}

}  // namespace
}  // namespace kvtide
