#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kvtide/error.h"

namespace kvtide {
namespace {

// Which row of each family a table has: bf16 instructions are for attention alone, products of bytes (avx_vnni, dotprod,
// i8mm) and tiles for matmul.
// Attention on processors with tiles uses bf16 instructions to round, and not to multiply.
struct Families {
  std::string matmul, attend, rest;
};
Families families_of(const std::string& isa) {
  if (isa == "avx_vnni") return {isa, "avx2", "avx2"};
  if (isa == "amx") return {isa, isa, "avx512"};
  if (isa == "avx512_bf16") return {"avx512", isa, "avx512"};
  if (isa == "dotprod" || isa == "i8mm") return {isa, "neon", "neon"};
  if (isa == "i8mm_bf16") return {"i8mm", "neon_bf16", "neon"};
  return {isa, isa, isa};
}

TEST(Kernels, EndWithTheScalarTable_WhichEveryProcessorRuns) {
  const auto tables = available_kernels();
  ASSERT_FALSE(tables.empty());
  EXPECT_STREQ(tables.back()->isa, "scalar");
  EXPECT_EQ(&best_kernels(), tables.front());
}

// What qemu plays is known to who starts it: tools/test_aarch64.sh.
TEST(Kernels, AreThoseOfTheProcessor) {
  const char* wanted = std::getenv("KVTIDE_TABLES");
  if (wanted == nullptr) GTEST_SKIP() << "KVTIDE_TABLES does not say which processor this is";
  std::string tables;
  for (const Kernels* table : available_kernels())
    tables += (tables.empty() ? "" : " ") + std::string(table->isa);
  EXPECT_EQ(tables, wanted);
}

TEST(Kernels, AreFoundByName_WithTheFamiliesOfTheirInstructionSet) {
  for (const Kernels* table : available_kernels()) {
    EXPECT_EQ(&kernels_by_name(table->isa), table);
    const Families wanted = families_of(table->isa);
    EXPECT_EQ(table->matmul.isa, wanted.matmul);
    EXPECT_EQ(table->attend.isa, wanted.attend);
    EXPECT_EQ(table->elementwise.isa, wanted.rest);
    EXPECT_EQ(table->dense.isa, wanted.rest);
    EXPECT_EQ(table->probe.isa, wanted.matmul);
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
