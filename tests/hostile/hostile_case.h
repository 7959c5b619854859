// hostile_case.h: one named bad file: how it is made, the error it must give and what the message must say.
//
//   const std::vector<HostileCase> kCases = {{"VersionIsZero", [] { ... }, ErrorCode::unsupported, "version
//   0"}}; HOSTILE_CASES(GgufHeader, kCases);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "kvtide/error.h"
#include "tests/hostile/sample_files.h"
#include "tests/hostile/walk.h"

namespace kvtide::testing {

struct HostileCase {
  std::string name;
  std::function<Bytes()> make;
  ErrorCode code = ErrorCode::bad_format;
  std::string says;
};

inline void PrintTo(const HostileCase& bad, std::ostream* out) { *out << bad.name; }

inline void expect_refused(const HostileCase& bad) {
  const Bytes bytes = bad.make();
  try {
    const GgufFile file = GgufFile::from_bytes(bytes, "bad.gguf");
    walk(file);
    ADD_FAILURE() << bad.name << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), bad.code) << error.message();
    EXPECT_TRUE(error.message().starts_with("bad.gguf: ")) << error.message();
    EXPECT_NE(error.message().find(bad.says), std::string::npos)
        << "the message: " << error.message() << "\nshould say:  " << bad.says;
  }
}

#define HOSTILE_CASES(Suite, cases)                                                 \
  class Suite : public ::testing::TestWithParam<::kvtide::testing::HostileCase> {}; \
  TEST_P(Suite, IsRefused) { ::kvtide::testing::expect_refused(GetParam()); }       \
  INSTANTIATE_TEST_SUITE_P(Named, Suite, ::testing::ValuesIn(cases),                \
                           [](const auto& instance) { return instance.param.name; })

// A valid file with one field overwritten.
template <class T>
std::function<Bytes()> with(GgufFieldKind kind, std::string of, T value, std::size_t index = 0) {
  return [=] {
    GgufImage image = every_type_file();
    return image.put(image.field(kind, of, index), value).bytes;
  };
}

// The numbers that break unchecked arithmetic.
struct Extreme {
  const char* name;
  std::uint64_t value;
};
inline constexpr Extreme kExtremes[] = {
    {"2pow31Minus1", (std::uint64_t{1} << 31) - 1},
    {"2pow31", std::uint64_t{1} << 31},
    {"2pow32Minus1", (std::uint64_t{1} << 32) - 1},
    {"2pow32", std::uint64_t{1} << 32},
    {"2pow61Plus1", (std::uint64_t{1} << 61) + 1},
    {"2pow63Minus1", (std::uint64_t{1} << 63) - 1},
    {"2pow63", std::uint64_t{1} << 63},
    {"2pow64Minus8", ~std::uint64_t{7}},
    {"2pow64Minus1", ~std::uint64_t{0}},
};

}  // namespace kvtide::testing
