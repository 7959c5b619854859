// Twenty thousand damaged models: each is read, or refused in one line that begins with the file.
#include <gtest/gtest.h>

#include <random>

#include "coreml/program/mil_printer.h"
#include "coreml/program/mil_reader.h"
#include "coreml/program/pipeline.h"
#include "coreml/program/weight_files.h"
#include "coreml/program/wire_model.h"
#include "tests/coreml/hostile_package.h"

namespace kvtide::testing {
namespace {

// Bytes overwritten, flipped, left out, doubled or moved, or an end that is missing.
std::string mutant(const std::string& original, std::mt19937_64& random) {
  std::string text = original;
  const auto below = [&](std::size_t limit) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(limit, 1));
  };
  constexpr char kNotable[] = {'\0', '\x01', '\x7f', '\x80', '\xff', '(', '[', '"', '9', '-'};
  for (std::size_t changes = 1 + below(4); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(text.size()),
                      length = 1 + below(std::min<std::size_t>(text.size() - at, 12));
    switch (below(6)) {
      case 0:
        text[at] = kNotable[below(std::size(kNotable))];
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        text.replace(at, length, text.substr(below(text.size()), length));
        break;
      default:
        if (below(4) == 0) text.resize(at);
    }
  }
  return text;
}

// How many of them were accepted.
int count_accepted(const std::string& original, int count,
                   const std::function<void(const std::string&)>& read) {
  std::mt19937_64 random(20251);
  int accepted = 0;
  for (int i = 0; i < count; ++i) {
    const std::string damaged = mutant(original, random);
    try {
      read(damaged);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_TRUE(error.message().starts_with("bad.file: ")) << error.message();
      EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
    }
  }
  return accepted;
}

class CoremlMutants : public ::testing::Test {
 protected:
  CoremlMutants() : path_(put_package(folder_, small_files())) {}
  std::string data() const { return path_ + "/Data/com.apple.CoreML"; }

  const TemporaryFolder folder_;
  const std::string path_;
};

TEST_F(CoremlMutants, OfTheModel) {
  const int accepted = count_accepted(small_files().model, 10000, [&](const std::string& model) {
    cm::WeightFiles weights(data());
    cm::read_model(std::as_bytes(std::span(model)), "bad.file", weights);
  });
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 5000);
}

TEST_F(CoremlMutants, OfAPipeline) {
  const std::string golden = cat(KVTIDE_GOLDENS, "/coreml/pipeline.mlpackage/Data/com.apple.CoreML");
  const int accepted =
      count_accepted(contents_of(golden + "/model.mlmodel"), 5000, [&](const std::string& model) {
        cm::WeightFiles weights(golden);
        const cm::Package read = cm::read_model(std::as_bytes(std::span(model)), "bad.file", weights);
        if (!read.stages.empty()) cm::as_one_program(read);
      });
  EXPECT_GT(accepted, 0);
}

TEST_F(CoremlMutants, OfTheText) {
  const cm::Package read = cm::open_package(path_);
  const std::string text = cm::mil_text(read.program, &read.description);
  const int accepted = count_accepted(text, 6000, [&](const std::string& mil) {
    cm::WeightFiles weights(data());
    cm::read_mil(mil, "bad.file", weights);
  });
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 3000);
}

// Behind the weights' bytes nothing is checked: the mutants are of the records.
TEST_F(CoremlMutants, OfTheWeights) {
  std::string records = small_files().weights;
  const std::string data = records.substr(128, 512);
  records.erase(128, 512);
  const int accepted = count_accepted(records, 4000, [&](std::string blob) {
    if (blob.size() > 128) blob.insert(128, data);
    const auto bytes = std::as_bytes(std::span(blob));
    const auto first = cm::weight_at(bytes, 64, DataType::fp16, 256, "bad.file");
    ASSERT_TRUE(first.data() >= bytes.data() && first.data() + first.size() <= bytes.data() + bytes.size());
    cm::weight_at(bytes, 640, DataType::uint3, 21, "bad.file");
  });
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 2000);
}

}  // namespace
}  // namespace kvtide::testing
