// deepseek_test.cpp: what configurations of DeepSeek V3 and GLM 4.7 Flash say, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "model/memory_shape.h"
#include "model/read_config.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

ModelConfig config_of(const std::string& type, const std::string& more = "") {
  const std::string text =
      R"({"model_type":")" + type +
      R"(","hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,)"
      R"("num_key_value_heads":4,"max_position_embeddings":512,"vocab_size":100,"kv_lora_rank":512,"q_lora_rank":48,)"
      R"("qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"n_routed_experts":8,"num_experts_per_tok":2,)"
      R"("moe_intermediate_size":32)" +
      more + "}";
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

TEST(DeepseekConfig, AStateKeepsOneRowForAllHeads) {
  const ModelConfig c = config_of("deepseek_v3", R"(,"n_group":4,"topk_group":2)");
  EXPECT_EQ(c.kv_heads, 1);
  EXPECT_EQ(c.head_dim, 576);
  EXPECT_EQ(c.rope_dims, 64);
  EXPECT_FLOAT_EQ(c.attention_scale, 1.0f / std::sqrt(192.0f));
  const KvSpec shape = memory_shape(c);
  ASSERT_EQ(shape.layers.size(), 4u);
  EXPECT_EQ(shape.layers[0].kv_heads, 1);
  EXPECT_EQ(shape.layers[0].frequencies.size(), 32u);
}

TEST(DeepseekConfig, TheFirstLayersAreDense) {
  const ModelConfig c = config_of("deepseek_v3");
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(c.layers[i].routed, i == 3) << i;
  EXPECT_TRUE(c.experts->sigmoid && c.experts->balanced && c.experts->shares_sum_to_1);
  EXPECT_EQ(c.experts->shared, 32);
  const ModelConfig glm =
      config_of("glm4_moe_lite", R"(,"mlp_layer_types":["dense","sparse","dense","sparse"])");
  EXPECT_FALSE(glm.layers[2].routed);
  EXPECT_TRUE(glm.layers[3].routed);
  EXPECT_TRUE(config_of("glm4_moe_lite").layers[1].routed);
}

TEST(DeepseekConfig, ScoresGrowWithYarn) {
  const ModelConfig c =
      config_of("deepseek_v3", R"(,"rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,)"
                               R"("mscale_all_dim":1.0,"original_max_position_embeddings":64})");
  const float magnitude = 0.1f * std::log(40.0f) + 1.0f;
  EXPECT_NEAR(c.attention_scale, magnitude * magnitude / std::sqrt(192.0f), 1e-6f);
  EXPECT_DOUBLE_EQ(*c.ropes[0].magnitude, 1.0);
}

TEST(DeepseekConfig, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& more, const std::string& says, ErrorCode code) {
    testing::expect_refused(code, says, [&] { config_of("deepseek_v3", more); });
  };
  refused(R"(,"n_group":3)", "among 3 groups of 8 experts cannot be chosen", ErrorCode::bad_format);
  refused(R"(,"n_group":8,"topk_group":2)", "cannot be chosen", ErrorCode::bad_format);
  refused(R"(,"mlp_layer_types":["dense"])", "'mlp_layer_types' has 1 entries", ErrorCode::bad_format);
  refused(R"(,"attention_bias":true)", "'attention_bias' is true", ErrorCode::unsupported);
}

}  // namespace
}  // namespace kvtide
