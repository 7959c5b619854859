#include "model/read_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::ModelSketch;
using testing::sample_model;

ModelConfig config_of(const ModelSketch& sketch) {
  const testing::Bytes bytes = sketch.build().bytes;
  return read_config(GgufFile::from_bytes(bytes, "sample.gguf"));
}

void expect_refused(const ModelSketch& sketch, const std::string& says,
                    ErrorCode code = ErrorCode::bad_format) {
  testing::expect_refused(code, says, [&] { config_of(sketch); });
  testing::expect_refused(code, "sample.gguf: ", [&] { config_of(sketch); });
}

TEST(Config, ReadsTheShapeOfALlama) {
  const ModelConfig c = config_of(sample_model({.layers = 3, .heads = 6, .kv_heads = 2, .head_dim = 10}));
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.context_length, 4096);
  EXPECT_EQ(c.vocab, 64);
  EXPECT_EQ(c.width, 64);
  EXPECT_EQ(c.hidden, 128);
  EXPECT_EQ(c.heads, 6);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_dim, 10);
  EXPECT_EQ(c.rope_dims, 10);
  EXPECT_TRUE(c.rope_interleaved);
  EXPECT_FLOAT_EQ(c.norm_epsilon, 1e-5f);
  EXPECT_FLOAT_EQ(c.attention_scale, 0.31622777f);  // 1 / sqrt(10)
  EXPECT_EQ(c.embedding_scale, 1.0f);
  EXPECT_EQ(c.activation, Activation::silu);
  EXPECT_FALSE(c.head_norms);
  EXPECT_FALSE(c.post_norms);
  ASSERT_EQ(c.layers.size(), 3u);
  for (const auto& layer : c.layers) EXPECT_FALSE(layer.window.has_value());
  ASSERT_EQ(c.ropes.size(), 1u);
  EXPECT_EQ(c.ropes[0].base, 10000.0);
}

TEST(Config, FillsInWhatALlamaFileMayLeaveOut) {
  ModelSketch sketch = sample_model();
  for (const char* key :
       {"attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.freq_base"})
    sketch.drop(std::string("llama.") + key);
  const ModelConfig c = config_of(sketch);
  EXPECT_EQ(c.kv_heads, 4) << "as many as query heads";
  EXPECT_EQ(c.head_dim, 16) << "width / heads";
  EXPECT_EQ(c.ropes[0].base, 10000.0);
}

TEST(Config, GivesGemmaItsPattern_FiveWindowedLayersAndAGlobalOne) {
  testing::SampleModel sample{.architecture = "gemma3", .layers = 13};
  sample.window = 20;
  const ModelConfig c = config_of(sample_model(sample).set("gemma3.rope.freq_base", 1e6f));
  EXPECT_FLOAT_EQ(c.embedding_scale, 8.0f);  // sqrt(64)
  EXPECT_EQ(c.activation, Activation::gelu);
  EXPECT_TRUE(c.head_norms);
  EXPECT_TRUE(c.post_norms);
  EXPECT_FALSE(c.rope_interleaved);
  for (std::size_t i = 0; i < 13; ++i) {
    const bool global = i == 5 || i == 11;
    EXPECT_EQ(c.layers[i].window, global ? std::nullopt : std::optional<std::int64_t>(20)) << i;
    EXPECT_EQ(c.ropes[static_cast<std::size_t>(c.layers[i].rope)].base, global ? 1e6 : 1e4) << i;
  }
}

TEST(Config, GivesMistralItsWindowOnEveryLayer) {
  testing::SampleModel sample;
  sample.window = 33;
  for (const auto& layer : config_of(sample_model(sample)).layers) EXPECT_EQ(layer.window, 33);
}

TEST(Config, ReadsKvHeadsLayerByLayer_AndRefusesOthersThanOneNumber) {
  const std::string key = "llama.attention.head_count_kv";
  const auto heads = [&](std::vector<std::int32_t> counts) {
    return sample_model({.layers = 2}).set_array(key, std::move(counts));
  };
  const int usual = config_of(sample_model({.layers = 2})).kv_heads;
  EXPECT_EQ(config_of(heads({usual, usual})).kv_heads, usual);
  expect_refused(heads({usual}), "has 1 entries for 2 layers");
  expect_refused(heads({usual, 2 * usual}), "KV heads and others have", ErrorCode::unsupported);
  expect_refused(heads({usual, 0}), "layers with 0 KV heads are not supported of llama",
                 ErrorCode::unsupported);
  expect_refused(heads({0, 0}), "it must be between 1 and 4096");
  expect_refused(heads({usual, -1}), "KV heads and others have", ErrorCode::unsupported);
}

TEST(Config, RefusesAnUnknownArchitecture_AndListsTheKnown) {
  expect_refused(sample_model().set("general.architecture", std::string("mamba")),
                 "architecture 'mamba' is not supported; kvtide runs: llama, gemma3, qwen2, qwen3",
                 ErrorCode::unsupported);
  expect_refused(sample_model().drop("general.architecture"), "'general.architecture' is missing");
}

TEST(Config, RefusesAKeyThatIsMissing_AndNamesIt) {
  for (const std::string key : {"context_length", "embedding_length", "block_count", "feed_forward_length",
                                "attention.head_count", "attention.layer_norm_rms_epsilon"})
    expect_refused(sample_model().drop("llama." + key), "'llama." + key + "' is missing");
  expect_refused(sample_model().drop_tensor("token_embd.weight"), "'token_embd.weight' is missing");
  testing::SampleModel gemma{.architecture = "gemma3"};
  expect_refused(sample_model(gemma), "'gemma3.attention.sliding_window' is missing");
}

TEST(Config, RefusesACountOutOfRange_AndTellsTheRange) {
  struct Case {
    const char* key;
    std::uint64_t value;
    const char* says;
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  for (const Case& bad : std::initializer_list<Case>{
           {"block_count", 0, "'llama.block_count' is 0; it must be between 1 and 1024"},
           {"block_count", 1025, "'llama.block_count' is 1025"},
           {"block_count", kHuge, "'llama.block_count' is 18446744073709551615"},
           {"context_length", 0, "'llama.context_length' is 0; it must be between 1 and 2147483648"},
           {"embedding_length", 0, "'llama.embedding_length' is 0"},
           {"embedding_length", kHuge / 2, "'llama.embedding_length' is 9223372036854775807"},
           {"feed_forward_length", 0, "'llama.feed_forward_length' is 0"},
           {"feed_forward_length", (1u << 20) + 1, "'llama.feed_forward_length' is 1048577"},
           {"attention.head_count", 0, "'llama.attention.head_count' is 0"},
           {"attention.head_count", 4097, "'llama.attention.head_count' is 4097"},
           {"attention.head_count_kv", 0, "'llama.attention.head_count_kv' is 0"},
           {"attention.key_length", 0, "'llama.attention.key_length' is 0"},
           {"attention.key_length", 577, "'llama.attention.key_length' is 577; it must be between 1 and 576"},
           {"attention.value_length", kHuge, "'llama.attention.value_length' is 18446744073709551615"},
           {"rope.dimension_count", 0, "'llama.rope.dimension_count' is 0"},
           {"rope.dimension_count", 1u << 31, "'llama.rope.dimension_count' is 2147483648"},
           {"attention.sliding_window", kHuge, "'llama.attention.sliding_window' is 18446744073709551615"},
       })
    expect_refused(sample_model().set(std::string("llama.") + bad.key, bad.value), bad.says);
  expect_refused(sample_model().set("llama.block_count", std::int32_t{-1}), "llama.block_count");
  expect_refused(sample_model().set("llama.block_count", std::string("two")), "llama.block_count");
  expect_refused(sample_model().set("llama.block_count", 2.0f), "llama.block_count");
  testing::SampleModel gemma{.architecture = "gemma3"};
  gemma.window = 0;
  expect_refused(sample_model(gemma), "'gemma3.attention.sliding_window' is 0");
}

TEST(Config, RefusesHeadsThatDoNotDivide) {
  expect_refused(sample_model({.heads = 4, .kv_heads = 3}), "4 query heads cannot share 3 KV heads");
  expect_refused(sample_model({.heads = 2, .kv_heads = 4}), "2 query heads cannot share 4 KV heads");
  expect_refused(sample_model({.heads = 258, .kv_heads = 2}),
                 "129 query heads per KV head; at most 128 are supported", ErrorCode::unsupported);
  expect_refused(sample_model({.heads = 7, .kv_heads = 7}).drop("llama.attention.key_length"),
                 "'llama.attention.key_length' is missing");  // 64 / 7 is no whole number
}

TEST(Config, RefusesKeysAndValuesOfDifferentLength) {
  expect_refused(sample_model().set("llama.attention.value_length", std::uint32_t{8}),
                 "keys of 16 and values of 8", ErrorCode::unsupported);
}

TEST(Config, RefusesMoreRotatedDimensionsThanAHeadHas_AndAnOddNumber) {
  expect_refused(sample_model().set("llama.rope.dimension_count", std::uint32_t{18}), "rope.dimension_count");
  expect_refused(sample_model().set("llama.rope.dimension_count", std::uint32_t{7}), "rope.dimension_count");
  EXPECT_EQ(config_of(sample_model().set("llama.rope.dimension_count", std::uint32_t{8})).rope_dims, 8);
}

TEST(Config, RefusesNumbersThatAreNotNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, kInf, -kInf, 0.0f, -10000.0f, 1e30f})
    expect_refused(sample_model().set("llama.rope.freq_base", bad), "llama.rope.freq_base");
  for (const float bad : {kNan, kInf, -1e-5f, 2.0f})
    expect_refused(sample_model().set("llama.attention.layer_norm_rms_epsilon", bad),
                   "llama.attention.layer_norm_rms_epsilon");
}

TEST(Config, RefusesARopeScalingItDoesNotKnow_OrCannotUse) {
  expect_refused(
      sample_model().set("llama.rope.scaling.type", std::string("dynamic")),
      "rope scaling 'dynamic' is not supported; kvtide knows none, linear, yarn, llama3 and longrope",
      ErrorCode::unsupported);
  expect_refused(sample_model().set("llama.rope.scaling.type", std::string("longrope")),
                 "needs the tensors 'rope_factors_short.weight'");
  const std::vector<float> ones(8, 1.0f);
  expect_refused(sample_model().set_floats("rope_factors_long.weight", {8}, ones), "there is only one");
  const auto both = [&](std::uint64_t pairs) {
    return sample_model()
        .set_floats("rope_factors_short.weight", {8}, ones)
        .set_floats("rope_factors_long.weight", {pairs}, std::vector<float>(pairs, 2.0f));
  };
  expect_refused(both(8), "'llama.rope.scaling.original_context_length' is missing");
  const auto whole = [&](std::uint64_t pairs) {
    return both(pairs).set("llama.rope.scaling.original_context_length", std::uint32_t{16});
  };
  expect_refused(whole(7), "'rope_factors_long.weight' must be f32 [8]");
  EXPECT_EQ(config_of(whole(8)).ropes[0].divisors, std::vector<float>(8, 2.0f));
  const auto linear = [] { return sample_model().set("llama.rope.scaling.type", std::string("linear")); };
  expect_refused(linear(), "'llama.rope.scaling.factor' is missing");
  for (const float bad : {0.0f, -8.0f, std::numeric_limits<float>::quiet_NaN(), 1e9f})
    expect_refused(linear().set("llama.rope.scaling.factor", bad), "llama.rope.scaling.factor");
  EXPECT_EQ(config_of(linear().set("llama.rope.scaling.factor", 8.0f)).ropes[0].factor, 8.0);
  expect_refused(sample_model()
                     .set("llama.rope.scaling.type", std::string("yarn"))
                     .set("llama.rope.scaling.factor", 4.0f),
                 "'llama.rope.scaling.original_context_length' is missing");
}

TEST(Config, RefusesRopeDivisorsOfTheWrongShapeOrValue) {
  const std::vector<float> ones(8, 1.0f);
  EXPECT_EQ(config_of(sample_model().set_floats("rope_freqs.weight", {8}, ones)).ropes[0].divisors, ones);
  expect_refused(sample_model().set_floats("rope_freqs.weight", {7}, std::vector<float>(7, 1.0f)),
                 "'rope_freqs.weight' must be f32 [8]");
  expect_refused(sample_model().set_tensor("rope_freqs.weight", {8}, DType::f16),
                 "'rope_freqs.weight' must be f32 [8]");
  for (const float bad : {0.0f, -1.0f, 1e7f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    auto values = ones;
    values[5] = bad;
    expect_refused(sample_model().set_floats("rope_freqs.weight", {8}, values), "'rope_freqs.weight' holds ");
  }
}

TEST(Config, RefusesAnEmbeddingThatIsNotAMatrix) {
  expect_refused(sample_model().set_tensor("token_embd.weight", {64}, DType::f32), "must have the shape");
  expect_refused(sample_model().set_tensor("token_embd.weight", {64, 8, 8}, DType::f32),
                 "must have the shape");
}

}  // namespace
}  // namespace kvtide
