// opening.h: the promise about any file: a typed error or a correct load, in bounded work and memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "formats/gguf.h"
#include "kvtide/error.h"
#include "tests/base/work_meter.h"
#include "tests/hostile/allocation_meter.h"
#include "tests/hostile/gguf_builder.h"
#include "tests/hostile/walk.h"

namespace kvtide::testing {

struct Opening {
  bool loaded = false;
  std::string message;         // of the refusal
  std::uint64_t blocks = 0;    // basic blocks of code that opening took
  std::size_t peak_bytes = 0;  // of heap, beside the file itself
};

inline constexpr std::size_t kAllowedBytes = std::size_t{64} << 20;
// Per byte of a file and of 1,000 more. Five times what any file here takes; 1 MiB of it is far below a second.
inline constexpr std::uint64_t kAllowedBlocks = 50;

// Opens, walks over everything that was loaded, closes. Errors other than kvtide::Error escape and fail the
// test.
inline Opening open_and_walk(const Bytes& bytes) {
  Opening opening;
  const AllocationMeter meter;
  const std::uint64_t before = work_done().blocks;
  try {
    const GgufFile file = GgufFile::from_bytes(bytes, "mutant.gguf");
    opening.blocks = work_done().blocks - before;
    walk(file);
    opening.loaded = true;
  } catch (const Error& error) {
    opening.blocks = work_done().blocks - before;
    opening.message = error.message();
    EXPECT_TRUE(error.code() == ErrorCode::bad_format || error.code() == ErrorCode::unsupported)
        << error.message();
    EXPECT_TRUE(opening.message.starts_with("mutant.gguf: ")) << opening.message;
  }
  opening.peak_bytes = meter.peak();
  EXPECT_LE(opening.blocks, kAllowedBlocks * (bytes.size() + 1000));
  // The promise is 2 x file + 64 MiB with the file itself in memory once.
  EXPECT_LE(opening.peak_bytes, bytes.size() + kAllowedBytes);
  return opening;
}

}  // namespace kvtide::testing
