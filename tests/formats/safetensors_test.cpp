#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "kvtide/error.h"

namespace kvtide {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

std::span<const std::byte> bytes_of(const std::string& file) { return std::as_bytes(std::span(file)); }

const std::string kHeader =
    R"({"__metadata__":{"who":"me"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"I32","shape":[],"data_offsets":[8,12]}})";
const std::string kData("\0\0\x80\x3f\0\0\0\x40\7\0\0\0", 12);  // 1.0, 2.0; 7

TEST(SafeTensors, ReadsNamesTypesShapesAndBytes) {
  const std::string file = file_of(kHeader, kData);
  const SafeTensors found = SafeTensors::parse(bytes_of(file), "x.safetensors");
  EXPECT_EQ(found.metadata, (std::map<std::string, std::string>{{"who", "me"}}));
  ASSERT_EQ(found.tensors.size(), 2u);
  const SafeTensor& a = found.tensors.at("a");
  EXPECT_EQ(a.dtype, "F32");
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 1}));
  float values[2];
  ASSERT_EQ(a.bytes.size(), sizeof values);
  std::memcpy(values, a.bytes.data(), sizeof values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], 2.0f);
  EXPECT_EQ(found.tensors.at("b").shape.size(), 0u);
  EXPECT_EQ(found.tensors.at("b").bytes[0], std::byte{7});
}

TEST(SafeTensors, TakesTensorsInAnyOrderAndTypesOfLessThanAByte) {
  const std::string file = file_of(R"({"z":{"dtype":"F4","shape":[6],"data_offsets":[4,7]},)"
                                   R"("y":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                                   "abcdefg");
  const SafeTensors found = SafeTensors::parse(bytes_of(file), "x");
  EXPECT_EQ(found.tensors.at("z").bytes.size(), 3u);
  EXPECT_EQ(found.tensors.at("y").bytes[3], std::byte{'d'});
}

struct BadFile {
  const char* what;
  std::string file;
  const char* says;
};

TEST(SafeTensors, RefusesFilesThatBreakARule_AndSaysWhich) {
  const auto one = [](const std::string& item, std::size_t data = 4) {
    return file_of("{\"a\":" + item + "}", std::string(data, 'x'));
  };
  const std::string deep = "{\"a\":" + std::string(100000, '[');
  const BadFile cases[] = {
      {"nothing", "", "its length"},
      {"half a length", "1234", "its length"},
      {"a length beyond the file", std::string("\xff\0\0\0\0\0\0\0{}", 10), "its text"},
      {"a length beyond reason", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "longer than"},
      {"no JSON", file_of("{\"a\"", ""), "not valid JSON"},
      {"text that is not UTF-8", file_of("{\"\xff\":1}", ""), "not valid JSON"},
      {"brackets without end", file_of(deep, ""), "levels deep"},
      {"a list", file_of("[]", ""), "does not begin with {"},
      {"a space before the object", file_of(" {}", ""), "does not begin with {"},
      {"a type that the format does not have", one(R"({"dtype":"Q4","shape":[8],"data_offsets":[0,4]})"),
       "has the dtype 'Q4'"},
      {"half a byte", one(R"({"dtype":"F4","shape":[7],"data_offsets":[0,4]})"), "not what its shape needs"},
      {"metadata that is a number", file_of(R"({"__metadata__":3})", ""), "__metadata__"},
      {"metadata with a number", file_of(R"({"__metadata__":{"k":3}})", ""), "'k'"},
      {"a tensor that is a number", one("3"), "'a' is no object"},
      {"no dtype", one(R"({"shape":[1],"data_offsets":[0,4]})"), "lacks dtype"},
      {"no shape", one(R"({"dtype":"F32","data_offsets":[0,4]})"), "lacks shape"},
      {"no offsets", one(R"({"dtype":"F32","shape":[1]})"), "lacks data_offsets"},
      {"a dtype that is a number", one(R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})"), "no text"},
      {"a shape that is a number", one(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})"), "no list"},
      {"nine dimensions", one(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})"),
       "no list"},
      {"a negative size", one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "whole number"},
      {"a broken size", one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})"), "whole number"},
      {"a product beyond 2^63",
       one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})"),
       "not what its shape needs"},
      {"one offset", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), "no pair"},
      {"offsets the wrong way round", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "lies at"},
      {"offsets beyond the file", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "of 4 bytes"},
      {"too few bytes", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"),
       "not what its shape needs"},
      {"bytes behind the last tensor", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 5),
       "of 5 bytes"},
      {"a gap", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8), "gap"},
      {"an overlap",
       file_of(
           R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
           "1234"),
       "overlap"},
      {"a name twice",
       file_of(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           "1"),
       "twice"},
  };
  for (const BadFile& bad : cases) {
    SCOPED_TRACE(bad.what);
    try {
      SafeTensors::parse(bytes_of(bad.file), "x.safetensors");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_format) << error.message();
      EXPECT_EQ(error.message().find("x.safetensors: "), 0u) << error.message();
      EXPECT_NE(error.message().find(bad.says), std::string::npos) << error.message();
    }
  }
}

// Damaged files and what the reference package says of each: tools/compare_safetensors.py.
TEST(SafeTensors, AcceptsAndRefusesWhatTheReferencePackageDoes) {
  std::ifstream file(KVTIDE_GOLDENS "/formats/safetensors.mutants", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  int accepted = 0, refused = 0;
  for (std::size_t at = 0; at + 5 <= all.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    const bool wanted = all[at + 4] != 0;
    ASSERT_LE(at + 5 + length, all.size());
    const std::string candidate = all.substr(at + 5, length);
    at += 5 + length;
    bool accepts = true;
    try {
      SafeTensors::parse(bytes_of(candidate), "m");
    } catch (const Error&) {
      accepts = false;
    }
    EXPECT_EQ(accepts, wanted) << ::testing::PrintToString(candidate);
    ++(wanted ? accepted : refused);
  }
  EXPECT_GT(accepted, 40);
  EXPECT_GT(refused, 200);
}

TEST(SafeTensors, MutantsAreRefusedOrLieInsideTheFile) {
  const std::string good = file_of(kHeader, kData);
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = good;
    for (int change = 0; change < 1 + round % 3; ++change) {
      const std::size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 4);
          break;
        case 2:
          file.insert(at, file.substr(random() % file.size(), 5));
          break;
        default:
          file[at] = "0123456789-.[]{}\","[random() % 18];
      }
      if (file.empty()) file = "x";
    }
    try {
      const SafeTensors found = SafeTensors::parse(bytes_of(file), "m");
      ++accepted;
      for (const auto& [name, tensor] : found.tensors) {
        ASSERT_GE(tensor.bytes.data(), bytes_of(file).data());
        ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), bytes_of(file).data() + file.size());
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::bad_format) << error.message();
    }
  }
  EXPECT_GT(accepted, 100) << "the mutants never came past the first check";
}

}  // namespace
}  // namespace kvtide
