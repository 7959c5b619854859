// folder_config_test.cpp: the shapes that config.json files of several ages and makers describe.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json/json_fields.h"
#include "base/json/json_value.h"
#include "model/read_config.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

ModelConfig config_of(const std::string& text) {
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

// A sound config of `type` with `more` members.
std::string config(const std::string& type, const std::string& more) {
  return R"({"model_type":")" + type +
         R"(","hidden_size":64,"intermediate_size":128,"num_hidden_layers":8,"num_attention_heads":4,)"
         R"("num_key_value_heads":2,"max_position_embeddings":512,"vocab_size":100,"rms_norm_eps":1e-5)" +
         (more.empty() ? "" : "," + more) + "}";
}

TEST(FolderConfig, FillsInWhatMayBeLeftOut) {
  const ModelConfig c =
      config_of(R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,)"
                R"("num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":null,)"
                R"("max_position_embeddings":512,"vocab_size":100})");
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rope_dims, 16);
  EXPECT_EQ(c.ropes.at(0).base, 10000.0);
  EXPECT_FLOAT_EQ(c.norm_epsilon, 1e-6f);
  EXPECT_EQ(c.tied_head, false);
  EXPECT_FALSE(c.rope_interleaved);
  EXPECT_FALSE(c.learned_positions);
}

TEST(FolderConfig, ReadsRotationsOfBothAges) {
  const ModelConfig old =
      config_of(config("llama", R"("rope_theta":500.0,"rope_scaling":{"type":"linear","factor":4.0})"));
  const ModelConfig now = config_of(
      config("llama", R"("rope_parameters":{"rope_theta":500.0,"rope_type":"linear","factor":4.0})"));
  for (const ModelConfig& c : {old, now}) {
    EXPECT_EQ(c.ropes.at(0).base, 500.0);
    EXPECT_EQ(c.ropes.at(0).scaling, RopeScaling::linear);
    EXPECT_EQ(c.ropes.at(0).factor, 4.0);
  }
  const ModelConfig yarn = config_of(config(
      "llama", R"("rope_scaling":{"rope_type":"yarn","factor":2.0,"original_max_position_embeddings":256})"));
  EXPECT_EQ(yarn.ropes.at(0).scaling, RopeScaling::yarn);
  EXPECT_EQ(yarn.ropes.at(0).original_context, 256.0);
  EXPECT_EQ(yarn.ropes.at(0).magnitude, std::nullopt);
  const ModelConfig told =
      config_of(config("llama", R"("rope_scaling":{"rope_type":"yarn","factor":4.0,"beta_fast":16,)"
                                R"("beta_slow":2,"mscale":2.0,"mscale_all_dim":1.0})"));
  EXPECT_EQ(told.ropes.at(0).fast_turns, 16.0);
  EXPECT_EQ(told.ropes.at(0).slow_turns, 2.0);
  EXPECT_DOUBLE_EQ(*told.ropes.at(0).magnitude, (1.0 + 0.2 * std::log(4.0)) / (1.0 + 0.1 * std::log(4.0)));
  EXPECT_TRUE(told.ropes.at(0).whole_pairs);
  const ModelConfig exact =
      config_of(config("llama", R"("rope_scaling":{"rope_type":"yarn","factor":2.0,"truncate":false})"));
  EXPECT_FALSE(exact.ropes.at(0).whole_pairs);
  EXPECT_EQ(config_of(config("llama", R"("partial_rotary_factor":0.5)")).rope_dims, 8);
}

TEST(FolderConfig, AWindowOfMistralHoldsForEveryLayer_ThatOfQwenOnlyWhenItIsUsed) {
  for (const LayerConfig& layer : config_of(config("mistral", R"("sliding_window":64)")).layers)
    EXPECT_EQ(layer.window, 64);
  for (const LayerConfig& layer : config_of(config("mistral", R"("sliding_window":null)")).layers)
    EXPECT_FALSE(layer.window);
  for (const LayerConfig& layer : config_of(config("llama", R"("sliding_window":64)")).layers)
    EXPECT_FALSE(layer.window);
  const std::string qwen = R"("sliding_window":64,"max_window_layers":6)";
  for (const LayerConfig& layer : config_of(config("qwen2", qwen)).layers) EXPECT_FALSE(layer.window);
  const ModelConfig used = config_of(config("qwen2", qwen + R"(,"use_sliding_window":true)"));
  EXPECT_FALSE(used.layers.at(5).window);
  EXPECT_EQ(used.layers.at(6).window, 64);
}

TEST(FolderConfig, GemmaOfBothAges_AloneOrInsideAModelOfTextAndImages) {
  const std::string old = R"("sliding_window":32,"sliding_window_pattern":4,"rope_theta":1e6,)"
                          R"("rope_local_base_freq":5000.0,"query_pre_attn_scalar":64,"head_dim":32)";
  const std::string whole = config("gemma3_text", old);
  for (const ModelConfig& c :
       {config_of(whole), config_of(R"({"model_type":"gemma3","text_config":)" + whole + "}")}) {
    EXPECT_EQ(c.architecture, "gemma3");
    EXPECT_EQ(c.ropes.at(0).base, 1e6);
    EXPECT_EQ(c.ropes.at(1).base, 5000.0);
    EXPECT_FLOAT_EQ(c.attention_scale, 0.125f);
    EXPECT_FLOAT_EQ(c.embedding_scale, 8.0f);
    EXPECT_EQ(c.tied_head, true);
    for (std::size_t i = 0; i < c.layers.size(); ++i) {
      EXPECT_EQ(c.layers[i].window.has_value(), (i + 1) % 4 != 0) << i;
      EXPECT_EQ(c.layers[i].rope, c.layers[i].window ? 1 : 0) << i;
    }
  }
}

TEST(FolderConfig, ReadsAGpt2) {
  const ModelConfig c =
      config_of(R"({"model_type":"gpt2","n_positions":1024,"n_embd":768,"n_head":12,"n_layer":12,)"
                R"("vocab_size":6000})");
  EXPECT_EQ(c.architecture, "gpt2");
  EXPECT_EQ(c.hidden, 3072);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.kv_heads, 12);
  EXPECT_EQ(c.rope_dims, 0);
  EXPECT_EQ(c.norm, NormKind::layer);
  EXPECT_TRUE(c.learned_positions);
  EXPECT_FALSE(c.gated);
  EXPECT_EQ(c.tied_head, true);
}

}  // namespace
}  // namespace kvtide
