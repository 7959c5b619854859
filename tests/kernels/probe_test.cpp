#include "kernels/probe.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/buffer.h"
#include "kernels/kernels.h"

namespace kvtide {
namespace {

TEST(Probe, Read_SeesEveryByte_OnEveryInstructionSet) {
  constexpr std::size_t kBytes = 4096;
  Buffer memory(kBytes);
  for (const Kernels* kernels : available_kernels()) {
    EXPECT_EQ(kernels->probe.read(memory.data(), kBytes), 0u) << kernels->isa;
    for (std::size_t at = 0; at < kBytes; at += 37) {
      memory.data()[at] = std::byte{1};
      EXPECT_NE(kernels->probe.read(memory.data(), kBytes), 0u) << kernels->isa << ", byte " << at;
      memory.data()[at] = std::byte{0};
    }
  }
}

TEST(Probe, Arithmetic_DependsOnTheNumberOfRounds_SoNoCompilerLeftItOut) {
  for (const Kernels* kernels : available_kernels()) {
    const ProbeRow& probe = kernels->probe;
    EXPECT_NE(probe.fma(1), probe.fma(2)) << kernels->isa;
    // Sums of equal products grow in proportion to the rounds.
    EXPECT_NE(probe.dot(1), 0) << kernels->isa;
    EXPECT_EQ(probe.dot(10), 10 * probe.dot(1)) << kernels->isa;
    EXPECT_GT(probe.fma_flop, 0);
    EXPECT_GT(probe.dot_op, 0);
  }
}

}  // namespace
}  // namespace kvtide
