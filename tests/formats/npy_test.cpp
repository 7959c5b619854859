#include "formats/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kvtide/error.h"

namespace kvtide {
namespace {

std::vector<std::byte> file(const std::string& header, const std::vector<unsigned char>& data) {
  std::string text = std::string("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  text += header;
  std::vector<std::byte> out(text.size() + data.size());
  std::memcpy(out.data(), text.data(), text.size());
  if (!data.empty()) std::memcpy(out.data() + text.size(), data.data(), data.size());
  return out;
}

std::string refusal(const std::vector<std::byte>& bytes) {
  try {
    parse_npy(bytes, "a.npy");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_format);
    return error.message();
  }
  return "";
}

const std::string kTwo = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n";

TEST(Npy, ReadsWholeNumbersAndTheirShape) {
  const NpyArray array = parse_npy(file(kTwo, {7, 0, 0, 0, 255, 255, 255, 255}), "a.npy");
  EXPECT_EQ(array.shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(array.numbers, (std::vector<double>{7, -1}));
}

TEST(Npy, ReadsHalfFloatsOfTwoAxes) {
  const NpyArray array = parse_npy(
      file("{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2), }\n", {0, 0x3c, 0, 0xc0}), "a.npy");
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(array.floats(), (std::vector<float>{1.0f, -2.0f}));
}

TEST(Npy, RefusesWhatTheBytesDoNotHold_AndNamesTheFile) {
  const std::string short_file = refusal(file(kTwo, {7, 0, 0, 0}));
  EXPECT_NE(short_file.find("a.npy"), std::string::npos);
  EXPECT_NE(short_file.find("elements"), std::string::npos);
  EXPECT_NE(refusal(file(kTwo, std::vector<unsigned char>(9))).find("too many"), std::string::npos);
}

TEST(Npy, RefusesShapesThatOverflow) {
  EXPECT_NE(
      refusal(file("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n", {}))
          .find("too many elements"),
      std::string::npos);
  EXPECT_NE(
      refusal(file("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n", {})).find("whole numbers"),
      std::string::npos);
}

TEST(Npy, RefusesOtherOrdersTypesAndFiles) {
  EXPECT_NE(refusal(file("{'descr': '<f4', 'fortran_order': True, 'shape': (), }\n", {})).find("C-ordered"),
            std::string::npos);
  EXPECT_NE(refusal(file("{'descr': '>f4', 'fortran_order': False, 'shape': (), }\n", {})).find("descr"),
            std::string::npos);
  EXPECT_NE(refusal(file("{'fortran_order': False, 'shape': (), }\n", {})).find("'descr'"),
            std::string::npos);
  EXPECT_NE(refusal(std::vector<std::byte>(20)).find("not a NumPy file"), std::string::npos);
}

TEST(Npy, RefusesEveryBeginningOfAFile) {
  const auto whole = file(kTwo, {7, 0, 0, 0, 1, 0, 0, 0});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(refusal({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}), "") << size;
}

}  // namespace
}  // namespace kvtide
