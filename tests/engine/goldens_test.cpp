// Whole models against an independent implementation: every tiny model, every position, every kernel table.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/engine/npy.h"

namespace kvtide {
namespace {

TEST(Goldens, CoverEveryArchitecture) {
  std::vector<std::string> seen;
  for (const std::string& path : testing::golden_models())
    seen.push_back(Model(path + ".gguf").architecture());
  EXPECT_GE(seen.size(), 9u);
  for (const char* architecture : {"llama", "gemma3", "qwen2", "qwen3"})
    EXPECT_NE(std::find(seen.begin(), seen.end(), architecture), seen.end()) << architecture;
}

TEST(Goldens, LogitsOfEveryPositionAreThoseOfTheReference) {
  const auto ids = testing::read_npy<TokenId>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  ASSERT_EQ(ids.size(), 80u);
  for (const std::string& path : testing::golden_models()) {
    const Model model(path + ".gguf");
    const auto wanted = testing::read_npy<float>(path + ".logits.npy", "<f4");
    ASSERT_EQ(wanted.size(), ids.size() * static_cast<std::size_t>(model.vocabulary()));
    for (const Kernels* kernels : available_kernels()) {
      SessionOptions options;
      options.exact = true;
      options.key_type = options.value_type = ElementType::f32;
      options.kernels = kernels->isa;
      const auto got = testing::all_logits(model, options, ids);
      ASSERT_EQ(got.size(), wanted.size()) << path;
      double worst = 0.0;
      for (std::size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])));
      EXPECT_LE(worst, 2e-4) << path << " " << kernels->isa;
    }
  }
}

// f16 rounds a key or value by at most 2^-12 of itself; through two to seven layers that stays a small part
// of a logit.
TEST(Goldens, LogitsStayCloseWithKeysAndValuesInF16) {
  const auto ids = testing::read_npy<TokenId>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  for (const std::string& path : testing::golden_models()) {
    const Model model(path + ".gguf");
    const auto wanted = testing::read_npy<float>(path + ".logits.npy", "<f4");
    SessionOptions options;
    options.exact = true;
    const auto got = testing::all_logits(model, options, ids);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i], 0.05) << path << " element " << i;
    EXPECT_NE(got, wanted) << path;
  }
}

TEST(Goldens, TheTextOfTheGoldensIsItsIds) {
  std::ifstream file(KVTIDE_GOLDENS "/models/tiny.txt");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto ids = testing::read_npy<TokenId>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  for (const std::string& path : testing::golden_models()) {
    const Model model(path + ".gguf");
    EXPECT_EQ(model.tokenizer().encode(text), ids) << path;
  }
}

}  // namespace
}  // namespace kvtide
