// The same message in other spellings that protobuf allows: fields in any order, unknown ones among them, repeated numbers one by one.
#include "coreml/program/wire.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "coreml/program/wire_model.h"
#include "tests/coreml/hostile_package.h"

namespace kvtide::testing {
namespace {

class CoremlWire : public ::testing::Test {
 protected:
  CoremlWire() : path_(put_package(folder_, small_files())), original_(read(small_files().model)) {}

  cm::Package read(const std::string& model) const {
    cm::WeightFiles weights(path_ + "/Data/com.apple.CoreML");
    return cm::read_model(std::as_bytes(std::span(model)), "a.mlpackage", weights);
  }
  void expect_same(const std::string& model) const {
    const cm::Package found = read(model);
    EXPECT_EQ(difference(original_.program, found.program), "");
    EXPECT_EQ(difference(original_.description.functions[0].inputs, found.description.functions[0].inputs),
              "");
  }

  const TemporaryFolder folder_;
  const std::string path_;
  const cm::Package original_;
};

const std::string kBlock = "502/2/2/3/2";
const std::string kAxes = kBlock + "/3[0]/5[1]/2";  // the value of operation 0: int32s

std::string reversed(const std::string& model, const std::string& path) {
  return edited(model, path, [](auto& fields, std::size_t i) {
    std::vector<WireField> inner = fields_of(fields[i].payload);
    std::reverse(inner.begin(), inner.end());
    fields[i].payload.clear();
    for (const WireField& field : inner) fields[i].payload += encoded(field);
  });
}

TEST_F(CoremlWire, TakesRepeatedNumbersOneByOne) {
  expect_same(with_bytes(small_files().model, kAxes + "/3/1/2", whole_field(1, 0) + whole_field(1, 1)));
  // Of a description's shape, and half of it packed.
  expect_same(edited(small_files().model, "2/1/3/5", [](auto& fields, std::size_t i) {
    std::string& array = fields[i].payload;
    array = without(array, "1") + whole_field(1, 1) + bytes_field(1, std::string(1, '\x10'));
  }));
}

TEST_F(CoremlWire, TakesNumbersInEveryFieldThatHoldsThem) {
  // Raw bytes, and 64-bit whole numbers of a 32-bit type.
  expect_same(with_bytes(small_files().model, kAxes + "/3/1",
                         bytes_field(7, bytes_field(1, std::string("\0\0\0\0\1\0\0\0", 8)))));
  expect_same(with_bytes(small_files().model, kAxes + "/3/1",
                         bytes_field(5, bytes_field(1, std::string("\0\1", 2)))));
}

TEST_F(CoremlWire, TakesFieldsInAnyOrder) {
  for (const std::string& path :
       std::vector<std::string>{"502", "502/2", "502/2/2/3", kAxes, kAxes + "/2/1", kBlock + "/3[2]/5[1]",
                                kBlock + "/3[2]/5[1]/2/5", "2/13"})
    expect_same(reversed(small_files().model, path));
}

TEST_F(CoremlWire, SkipsFieldsThatItDoesNotKnow) {
  const std::string unknown = whole_field(777, 5) + bytes_field(778, "text") + encoded({779, 5, "abcd"}) +
                              encoded({780, 1, "abcdefgh"});
  expect_same(small_files().model + unknown);
  for (const std::string& path : std::vector<std::string>{"502", "502/2/2", kBlock, kBlock + "/3[5]", kAxes,
                                                          kAxes + "/3", "2", "2/1", "2/1/3/5"})
    expect_same(with_more(small_files().model, path, unknown));
}

TEST_F(CoremlWire, TakesTheLastOfAFieldThatStandsTwice) {
  const cm::Package found =
      read(with_more(small_files().model, "2/100", bytes_field(3, "first") + bytes_field(3, "last")));
  EXPECT_EQ(found.description.author, "last");
}

TEST_F(CoremlWire, EveryEndThatIsMissingIsRefused) {
  const std::string& model = small_files().model;
  for (std::size_t size = 0; size < model.size(); ++size)
    EXPECT_THROW(read(model.substr(0, size)), Error) << size;
}

TEST(CoremlWireMessage, NegativeNumbersHaveTenBytes) {
  const std::string message = whole_field(1, ~std::uint64_t{0}) +
                              encoded({2, 5, std::string("\0\0\0\x3f", 4)}) +
                              encoded({3, 1, std::string("\0\0\0\0\0\0\xe0\x3f", 8)});
  cm::WireSource source{"x", 100};
  cm::WireMessage at(std::as_bytes(std::span(message)), source, "M");
  ASSERT_TRUE(at.next());
  EXPECT_EQ(at.integer("a"), -1);
  EXPECT_THROW(at.integer("a", 0, 5), Error);
  ASSERT_TRUE(at.next());
  EXPECT_EQ(at.real("b"), 0.5);
  ASSERT_TRUE(at.next());
  EXPECT_EQ(at.real("c"), 0.5);
  EXPECT_FALSE(at.next());
}

TEST(CoremlWireMessage, StopsWhereAFileHoldsTooMuch) {
  std::string message;
  for (int i = 0; i < 10; ++i) message += bytes_field(1, "");
  cm::WireSource source{"x", 5};
  cm::WireMessage at(std::as_bytes(std::span(message)), source, "M");
  try {
    while (at.next()) at.message("part");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "x: M.part: is one message more than are read of a file");
  }
}

}  // namespace
}  // namespace kvtide::testing
