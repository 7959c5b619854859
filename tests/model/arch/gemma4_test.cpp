// gemma4_test.cpp: what configurations of Gemma 4 say, and what is refused.
#include <gtest/gtest.h>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "model/memory_shape.h"
#include "model/read_config.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

ModelConfig config_of(const std::string& more, int whole_heads = 32) {
  const std::string text =
      R"({"model_type":"gemma4_text","hidden_size":64,"num_hidden_layers":6,"num_attention_heads":4,)"
      R"("num_key_value_heads":2,"head_dim":16,"intermediate_size":96,"vocab_size":100,)"
      R"("hidden_size_per_layer_input":0,"sliding_window":20,"layer_types":["sliding_attention",)"
      R"("full_attention","sliding_attention","full_attention","sliding_attention","full_attention"],)"
      R"("global_head_dim":)" +
      std::to_string(whole_heads) + more + "}";
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

void expect_refused(const std::string& more, const std::string& says,
                    ErrorCode code = ErrorCode::bad_format) {
  testing::expect_refused(code, says, [&] { config_of(more); });
}

TEST(Gemma4Config, LayersThatSeeEverythingHaveHeadsOfTheirOwn) {
  const ModelConfig c = config_of(R"(,"attention_k_eq_v":true,"num_global_key_value_heads":1)");
  EXPECT_EQ(heads_of(c, 0).kv_width(), 32);
  EXPECT_EQ(heads_of(c, 1).kv_width(), 32);
  EXPECT_EQ(heads_of(c, 0).head_dim, 16);
  EXPECT_EQ(heads_of(c, 1).head_dim, 32);
  EXPECT_FALSE(even_layers(c) || c.layers[0].values_are_keys);
  EXPECT_TRUE(c.layers[1].values_are_keys);
  const KvSpec shape = memory_shape(c);
  EXPECT_EQ(shape.layers.size(), 6u);
  // A quarter of the pairs turns by default, with the waves of whole heads.
  EXPECT_EQ(shape.layers[1].frequencies.size(), 16u);
  EXPECT_GT(shape.layers[1].frequencies[3], 0.0);
  EXPECT_EQ(shape.layers[1].frequencies[4], 0.0);
  EXPECT_EQ(whole_layer(shape.layers).head_dim, 32);
}

TEST(Gemma4Config, TodaysFilesListTheLayers) {
  const std::string whole = R"({"head_dim":24,"num_key_value_heads":4})";
  const ModelConfig c =
      config_of(R"(,"per_layer_config":{"1":)" + whole + R"(,"3":)" + whole + R"(,"5":)" + whole + "}");
  EXPECT_EQ(heads_of(c, 3).head_dim, 24);
  EXPECT_EQ(heads_of(c, 3).kv_heads, 4);
  expect_refused(R"(,"per_layer_config":{"0":)" + whole + "}", "an entry for layer 0",
                 ErrorCode::unsupported);
  expect_refused(R"(,"per_layer_config":{"1":)" + whole + R"(,"3":{"head_dim":8}})",
                 "layer 3 has other heads", ErrorCode::unsupported);
}

TEST(Gemma4Config, TheLastLayersReadTheRowsOfTheLastOfTheirKind) {
  const ModelConfig c = config_of(R"(,"num_kv_shared_layers":3,"use_double_wide_mlp":true)");
  EXPECT_EQ(attention_layers(c), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(c.layers[3].rows_of, 1);
  EXPECT_EQ(c.layers[4].rows_of, 2);
  EXPECT_EQ(c.layers[5].rows_of, 1);
  EXPECT_EQ(hidden_of(c, 2), 96);
  EXPECT_EQ(hidden_of(c, 3), 192);
  expect_refused(R"(,"num_kv_shared_layers":5)", "layer 1 shares keys and values");
  expect_refused(R"(,"num_kv_shared_layers":6)", "'num_kv_shared_layers' is 6");
}

TEST(Gemma4Config, RefusesWhatItDoesNotKnow) {
  expect_refused(R"(,"use_bidirectional_attention":"all")", "'use_bidirectional_attention' must be vision",
                 ErrorCode::unsupported);
  expect_refused(R"(,"hidden_activation":"silu")", "'hidden_activation'", ErrorCode::unsupported);
  expect_refused(R"(,"attention_bias":true)", "'attention_bias' is true", ErrorCode::unsupported);
  expect_refused(R"(,"num_global_key_value_heads":3,"attention_k_eq_v":true)",
                 "4 query heads cannot share 3");
  testing::expect_refused(ErrorCode::bad_format, "heads of 33 cannot be rotated", [] { config_of("", 33); });
  expect_refused(R"(,"rope_parameters":{"sliding_attention":{"rope_theta":1000}})",
                 "'rope_parameters' lacks 'full_attention'");
  expect_refused(R"(,"rope_parameters":{"full_attention":{"rope_type":"yarn"},"sliding_attention":{}})",
                 "the rotation 'yarn'", ErrorCode::unsupported);
  expect_refused(R"(,"enable_moe_block":true)", "'num_experts' is missing");
}

TEST(Gemma4Config, TablesForEveryLayerAreAsLongAsTheVocabulary) {
  testing::expect_refused(
      ErrorCode::unsupported, "'vocab_size_per_layer_input' must be the vocab_size, 100", [] {
        const JsonValue json = JsonValue::parse(
            R"({"model_type":"gemma4_text","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":4,)"
            R"("intermediate_size":96,"vocab_size":100,"hidden_size_per_layer_input":8,"head_dim":16,)"
            R"("vocab_size_per_layer_input":90})",
            "config.json");
        read_config(JsonFields(json, "config.json"));
      });
}

}  // namespace
}  // namespace kvtide
