#include "validate/plain_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  for (const char* name :
       {"gemma3-f32",         "gpt2-f32",       "gpt2-long-f16",   "llama-f32",      "mistral-f16-shards",
        "qwen2-bf16",         "qwen3-i8",       "zaya-f16",        "zaya-i8",        "smollm3-f32",
        "ministral3-f32",     "phi3-f32",       "olmo3-f32",       "qwen3-moe-f32",  "lfm2-f32",
        "lfm2-moe-f32",       "qwen3-5-f32",    "qwen3-5-moe-f32", "qwen3-next-f32", "mamba2-f32",
        "granite-hybrid-f32", "nemotron-h-f32", "gpt-oss-f32",     "gpt-oss-mxfp4",  "deepseek-f32"}) {
    const std::string folder = std::string(KVTIDE_GOLDENS "/folders/") + name;
    const double allowed =
        std::string_view(name).starts_with("qwen3-5") || name == std::string_view("qwen3-next-f32") ? 2e-4
                                                                                                    : 3e-5;
    EXPECT_LT(worst_difference(folder, folder + "/logits.npy"), allowed) << name;
  }
}

// What a router had of the layer before belongs to a text: only inputs of texts that were read can be
// twisted.
TEST(PlainDecoder, ALayerWithExpertsFedWithItsOwnInputGivesItsOwnOutput_AndNothingForAnother) {
  const auto ids = testing::read_npy<std::int32_t>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  ThreadPool pool(1);
  PlainDecoder decoder(KVTIDE_GOLDENS "/folders/zaya-f16", pool);
  const Golden golden = decoder.run(std::span(ids).first(20));
  decoder.run(std::span(ids).subspan(5, 12));  // another text in between
  const std::size_t size = 20 * static_cast<std::size_t>(golden.width);
  for (int layer = 0; layer < 2; ++layer) {
    const auto input = std::span(golden.hidden).subspan(static_cast<std::size_t>(layer) * size, size);
    const auto wanted = std::span(golden.hidden).subspan(static_cast<std::size_t>(layer + 1) * size, size);
    const auto got = decoder.twisted(layer, input, {});
    ASSERT_TRUE(got.has_value());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got->stream.begin(), got->stream.end())) << layer;
    Twist blind;
    blind.visible = [](Pos query, Pos row, bool) { return query == row; };
    const auto other = decoder.twisted(layer, input, blind);
    ASSERT_TRUE(other.has_value());
    EXPECT_FALSE(std::equal(wanted.begin(), wanted.end(), other->stream.begin(), other->stream.end()))
        << layer;
    std::vector<float> unknown(input.begin(), input.end());
    unknown.back() += 1.0f;
    EXPECT_FALSE(decoder.twisted(layer, unknown, {}).has_value());
  }
}

}  // namespace
}  // namespace kvtide
