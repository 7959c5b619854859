// qwen_linear_test.cpp: what configurations of Qwen 3 Next and Qwen 3.5 say, and what is refused.
#include <gtest/gtest.h>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "model/read_config.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

ModelConfig config_of(const std::string& text) {
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

std::string sizes(const std::string& type, const std::string& more = "") {
  return R"({"model_type":")" + type +
         R"(","hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,)"
         R"("num_key_value_heads":2,"head_dim":32,"max_position_embeddings":512,"vocab_size":100)" +
         more + "}";
}

const std::string kExperts =
    R"(,"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32,"shared_expert_intermediate_size":48)";

TEST(QwenLinearConfig, EveryFourthLayerHasAttentionUnlessListed) {
  const ModelConfig c = config_of(sizes("qwen3_5_text"));
  EXPECT_EQ(attention_layers(c), std::vector<int>{3});
  EXPECT_EQ(c.layers[0].mixer, Mixer::delta_net);
  EXPECT_TRUE(c.gated_attention && c.head_norms && carries(c));
  EXPECT_EQ(c.rope_dims, 8);
  EXPECT_EQ(c.delta->key_heads, 16);
  EXPECT_EQ(c.delta->value_heads, 32);
  EXPECT_EQ(c.delta->taps, 4);
  EXPECT_FALSE(c.delta->tiled);
  const ModelConfig listed = config_of(
      sizes("qwen3_5_text",
            R"(,"layer_types":["full_attention","linear_attention","linear_attention","full_attention"])"));
  EXPECT_EQ(attention_layers(listed), (std::vector<int>{0, 3}));
  EXPECT_EQ(attention_layers(config_of(sizes("qwen3_5_text", R"(,"full_attention_interval":2)"))),
            (std::vector<int>{1, 3}));
}

TEST(QwenLinearConfig, AModelOfTextAndImagesIsReadForItsText) {
  const ModelConfig c =
      config_of(R"({"model_type":"qwen3_5","tie_word_embeddings":true,"text_config":)" +
                sizes("qwen3_5_text", R"(,"rope_parameters":{"rope_type":"default","rope_theta":5000,)"
                                      R"("partial_rotary_factor":0.5,"mrope_section":[2,1,1]})") +
                "}");
  EXPECT_EQ(c.architecture, "qwen35");
  EXPECT_EQ(c.tied_head, true);
  EXPECT_EQ(c.rope_dims, 16);
  EXPECT_EQ(c.ropes[0].base, 5000.0);
}

TEST(QwenLinearConfig, OneExpertServesEveryToken) {
  for (const char* type : {"qwen3_next", "qwen3_5_moe_text"}) {
    const ModelConfig c = config_of(sizes(type, kExperts));
    EXPECT_EQ(c.experts->shared, 48);
    EXPECT_TRUE(c.experts->shared_gated && c.experts->shares_sum_to_1);
  }
  const ModelConfig some = config_of(sizes("qwen3_next", kExperts + R"(,"mlp_only_layers":[1])"));
  EXPECT_FALSE(some.layers[1].routed);
  EXPECT_TRUE(some.layers[2].routed);
}

TEST(QwenLinearConfig, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& more, const std::string& says, ErrorCode code) {
    testing::expect_refused(code, says, [&] { config_of(sizes("qwen3_5_text", more)); });
  };
  refused(R"(,"layer_types":["full_attention"])", "'layer_types' has 1 entries for 4 layers",
          ErrorCode::bad_format);
  refused(R"(,"layer_types":["full_attention","mamba","mamba","mamba"])", "layer 1 is of the type 'mamba'",
          ErrorCode::unsupported);
  refused(R"(,"full_attention_interval":5)", "no layer has attention", ErrorCode::unsupported);
  refused(R"(,"linear_num_value_heads":3,"linear_num_key_heads":2)", "3 value heads cannot share 2 key heads",
          ErrorCode::bad_format);
  refused(R"(,"attention_bias":true)", "'attention_bias' is true", ErrorCode::unsupported);
  refused(R"(,"linear_conv_kernel_dim":1)", "'linear_conv_kernel_dim' is 1", ErrorCode::bad_format);
}

}  // namespace
}  // namespace kvtide
