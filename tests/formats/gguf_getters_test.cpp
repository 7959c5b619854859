#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "formats/gguf.h"
#include "kvtide/error.h"
#include "tests/hostile/sample_files.h"

namespace kvtide {
namespace {

using testing::GgufBuilder;
using testing::GgufImage;

class GgufGetters : public ::testing::Test {
 protected:
  GgufImage image = testing::every_type_file();
  GgufFile file = GgufFile::from_bytes(image.bytes, "m.gguf");
};

template <class Get>
std::string refused_getter(Get get) {
  try {
    get();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_format) << error.message();
    return error.message();
  }
  return "(no error)";
}

TEST_F(GgufGetters, GiveNothingForAnAbsentKey) {
  EXPECT_EQ(file.get_string("x"), std::nullopt);
  EXPECT_EQ(file.get_uint("x"), std::nullopt);
  EXPECT_EQ(file.get_number("x"), std::nullopt);
  EXPECT_EQ(file.get_bool("x"), std::nullopt);
  EXPECT_FALSE(file.get_strings("x").has_value());
  EXPECT_EQ(file.get_numbers("x"), std::nullopt);
  EXPECT_EQ(file.get_floats("x"), std::nullopt);
  EXPECT_EQ(file.get_ints("x"), std::nullopt);
}

TEST_F(GgufGetters, GiveUnsignedNumbersOfEveryIntegerType) {
  EXPECT_EQ(file.get_uint("a.u8"), 200u);
  EXPECT_EQ(file.get_uint("a.u16"), 60000u);
  EXPECT_EQ(file.get_uint("a.u32"), 4000000000u);
  EXPECT_EQ(file.get_uint("a.u64"), std::uint64_t{1} << 60);
  const auto positive = GgufBuilder().key("i8", std::int8_t{7}).key("i64", std::int64_t{1} << 40).build();
  const GgufFile other = GgufFile::from_bytes(positive.bytes);
  EXPECT_EQ(other.get_uint("i8"), 7u);
  EXPECT_EQ(other.get_uint("i64"), std::uint64_t{1} << 40);
}

TEST_F(GgufGetters, RefuseANegativeNumberWhereNoneMayBe) {
  EXPECT_EQ(refused_getter([&] { file.get_uint("a.i8"); }),
            "m.gguf: key 'a.i8': is -100; it must not be negative");
  EXPECT_NE(refused_getter([&] { file.get_uint("a.i64"); }).find("is -1152921504606846976"),
            std::string::npos);
}

TEST_F(GgufGetters, GiveNumbersOfEveryType) {
  EXPECT_EQ(file.get_number("a.i8"), -100.0);
  EXPECT_EQ(file.get_number("a.i16"), -30000.0);
  EXPECT_EQ(file.get_number("a.i32"), -2e9);
  EXPECT_EQ(file.get_number("a.u16"), 60000.0);
  EXPECT_EQ(file.get_number("a.f32"), 0.5);
  EXPECT_EQ(file.get_number("a.f64"), 1e-300);
}

TEST_F(GgufGetters, RefuseNumbersThatAreNotFinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto bad = GgufBuilder()
                       .key("inf", -kInf)
                       .key("nan", kNan)
                       .array("infs", std::vector<double>{1, kInf})
                       .array("nans", std::vector<float>{1, 2, kNan})
                       .array("huge", std::vector<double>{1e39})
                       .build();
  const GgufFile other = GgufFile::from_bytes(bad.bytes, "m.gguf");
  EXPECT_EQ(refused_getter([&] { other.get_number("inf"); }),
            "m.gguf: key 'inf': is -inf; it must be finite");
  EXPECT_NE(refused_getter([&] { other.get_number("nan"); }).find("it must be finite"), std::string::npos);
  EXPECT_EQ(refused_getter([&] { other.get_numbers("infs"); }),
            "m.gguf: key 'infs': element 1 is inf; it must be finite");
  EXPECT_NE(refused_getter([&] { other.get_floats("nans"); }).find("element 2 is"), std::string::npos);
  EXPECT_EQ(refused_getter([&] { other.get_floats("huge"); }),
            "m.gguf: key 'huge': element 0 is 1e+39; it must be a finite f32");
  EXPECT_EQ(other.get_numbers("huge")->at(0), 1e39);
}

TEST_F(GgufGetters, GiveBoolsAndText) {
  EXPECT_EQ(file.get_bool("a.bool"), true);
  EXPECT_EQ(file.get_string("a.string"), "text");
  const auto strings = file.get_strings("b.strings");
  ASSERT_TRUE(strings && strings->size() == 3);
  EXPECT_EQ((*strings)[0], "");
  EXPECT_EQ((*strings)[2], "two words");
}

TEST_F(GgufGetters, GiveArraysOfEveryNumericType) {
  using Doubles = std::vector<double>;
  EXPECT_EQ(file.get_numbers("b.u8"), (Doubles{1, 2, 3}));
  EXPECT_EQ(file.get_numbers("b.i8"), (Doubles{-1, 2}));
  EXPECT_EQ(file.get_numbers("b.i16"), (Doubles{-7, 8}));
  EXPECT_EQ(file.get_numbers("b.u32"), (Doubles{1, 4e9}));
  EXPECT_EQ(file.get_numbers("b.f32"), (Doubles{0.5, -1.5}));
  EXPECT_EQ(file.get_numbers("b.bool"), (Doubles{1, 0}));
  EXPECT_EQ(file.get_numbers("b.f64"), (Doubles{0.25}));
  EXPECT_EQ(file.get_numbers("b.none"), Doubles{});
  EXPECT_EQ(file.get_floats("b.f32"), (std::vector<float>{0.5f, -1.5f}));
  EXPECT_EQ(file.get_floats("b.f64"), (std::vector<float>{0.25f}));
  EXPECT_EQ(file.get_ints("b.i32"), (std::vector<std::int32_t>{-1, 0, 1}));
  EXPECT_EQ(file.get_ints("b.u16"), (std::vector<std::int32_t>{7, 8}));
  EXPECT_EQ(file.get_ints("b.i64"), (std::vector<std::int32_t>{-1}));
  EXPECT_EQ(file.get_ints("b.bool"), (std::vector<std::int32_t>{1, 0}));
}

TEST_F(GgufGetters, RefuseIntegersThatDoNotFit) {
  EXPECT_EQ(refused_getter([&] { file.get_ints("b.u32"); }),
            "m.gguf: key 'b.u32': element 1 is 4000000000; it must fit into 32 bits with a sign");
}

TEST_F(GgufGetters, RefuseEveryWrongTypeAndNameIt) {
  const std::string scalars[] = {"u8",  "i8",   "u16",    "i16", "u32", "i32",
                                 "f32", "bool", "string", "u64", "i64", "f64"};
  const auto is = [](const std::string& type, std::initializer_list<const char*> of) {
    for (const char* one : of)
      if (type == one) return true;
    return false;
  };
  // Each getter is asked where the type is wrong for it; `wants` ends the message.
  const auto expect_refused = [&](bool wrong, const std::string& key, const std::string& is_type, auto get,
                                  const char* wants) {
    if (!wrong) return;
    EXPECT_EQ(refused_getter([&] { get(key); }),
              "m.gguf: key '" + key + "': is of type " + is_type + "; " + wants + " is needed");
  };
  for (const bool array : {false, true}) {
    for (const std::string& type : scalars) {
      const bool text = type == "string", real = is(type, {"f32", "f64"}), boolean = type == "bool";
      const std::string key = array ? (text ? "b.strings" : "b." + type) : "a." + type;
      const std::string of = array ? "array of " + type : type;
      const auto expect = [&](bool wrong, auto get, const char* wants) {
        expect_refused(wrong, key, of, get, wants);
      };
      expect(
          array || !text, [&](const auto& k) { file.get_string(k); }, "a string");
      expect(
          array || !boolean, [&](const auto& k) { file.get_bool(k); }, "a bool");
      expect(
          array || real || boolean || text, [&](const auto& k) { file.get_uint(k); }, "an integer");
      expect(
          array || boolean || text, [&](const auto& k) { file.get_number(k); }, "a number");
      expect(
          !array || !text, [&](const auto& k) { file.get_strings(k); }, "an array of strings");
      expect(
          !array || text, [&](const auto& k) { file.get_numbers(k); }, "an array of numbers");
      expect(
          !array || !real, [&](const auto& k) { file.get_floats(k); }, "an array of floats");
      expect(
          !array || real || text, [&](const auto& k) { file.get_ints(k); }, "an array of integers");
    }
  }
}

}  // namespace
}  // namespace kvtide
