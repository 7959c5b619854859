#include "eval/validate/plain_decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/npy.h"

namespace kvtide {
namespace {

// The largest difference to the logits that transformers gave for the same text.
double worst_difference(const std::string& model, const std::string& logits) {
  const auto ids = testing::read_npy<std::int32_t>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  const auto wanted = testing::read_npy<float>(logits, "<f4");
  ThreadPool pool(2);
  const Golden golden = PlainDecoder(model, pool).run(ids);
  EXPECT_EQ(golden.logits.size(), wanted.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(golden.logits[i] - wanted[i])));
  return worst;
}

TEST(PlainDecoder, GivesTheLogitsOfTransformersForEveryTinyModel) {
  for (const std::string& model : testing::golden_models())
    EXPECT_LT(worst_difference(model + ".gguf", model + ".logits.npy"), 2e-5) << model;
}

TEST(PlainDecoder, GivesTheLogitsOfTransformersForEveryFolder) {
  for (const char* name : {"gemma3-f32", "gpt2-f32", "gpt2-long-f16", "llama-f32", "mistral-f16-shards",
                           "qwen2-bf16", "qwen3-i8"}) {
    const std::string folder = std::string(KVTIDE_GOLDENS "/folders/") + name;
    EXPECT_LT(worst_difference(folder, folder + "/logits.npy"), 2e-5) << name;
  }
}

}  // namespace
}  // namespace kvtide
