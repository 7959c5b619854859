// opening.h: the promise about any file: a typed error or a correct load, in bounded time and memory.
#pragma once

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "formats/gguf.h"
#include "kvtide/error.h"
#include "tests/hostile/allocation_meter.h"
#include "tests/hostile/gguf_builder.h"
#include "tests/hostile/walk.h"

namespace kvtide::testing {

struct Opening {
  bool loaded = false;
  std::string message;         // of the refusal
  double seconds = 0;          // of opening
  std::size_t peak_bytes = 0;  // of heap, beside the file itself
};

inline constexpr std::size_t kAllowedBytes = std::size_t{64} << 20;

// Opens, walks over everything that was loaded, closes. Errors other than kvtide::Error escape and fail the
// test.
inline Opening open_and_walk(const Bytes& bytes) {
  Opening opening;
  const AllocationMeter meter;
  // Processor time: a machine that does other work, too, does not make the reader slower.
  const std::clock_t start = std::clock();
  const auto seconds = [&] { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; };
  try {
    const GgufFile file = GgufFile::from_bytes(bytes, "mutant.gguf");
    opening.seconds = seconds();
    walk(file);
    opening.loaded = true;
  } catch (const Error& error) {
    opening.seconds = seconds();
    opening.message = error.message();
    EXPECT_TRUE(error.code() == ErrorCode::bad_format || error.code() == ErrorCode::unsupported)
        << error.message();
    EXPECT_TRUE(opening.message.starts_with("mutant.gguf: ")) << opening.message;
  }
  opening.peak_bytes = meter.peak();
  EXPECT_LE(opening.seconds, 1.0);
  // The promise is 2 x file + 64 MiB with the file itself in memory once.
  EXPECT_LE(opening.peak_bytes, bytes.size() + kAllowedBytes);
  return opening;
}

}  // namespace kvtide::testing
