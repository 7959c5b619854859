// lfm2_test.cpp: what configurations of LFM2 say, and what is refused.
#include <gtest/gtest.h>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "model/read_config.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

ModelConfig config_of(const std::string& type, const std::string& more) {
  const std::string text =
      R"({"model_type":")" + type +
      R"(","hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,)"
      R"("max_position_embeddings":512,"vocab_size":100,)" +
      more + "}";
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

void expect_refused(const std::string& type, const std::string& more, const std::string& says,
                    ErrorCode code = ErrorCode::bad_format) {
  testing::expect_refused(code, says, [&] { config_of(type, more); });
}

const std::string kTypes = R"("intermediate_size":384,"layer_types":["conv","full_attention","conv"])";

TEST(Lfm2Config, SaysWhichLayersHaveAttention) {
  const ModelConfig c = config_of("lfm2", kTypes);
  EXPECT_EQ(attention_layers(c), std::vector<int>{1});
  EXPECT_EQ(c.conv_taps, 3);
  EXPECT_EQ(c.tied_head, true);
  EXPECT_TRUE(carries(c));
  const ModelConfig older =
      config_of("lfm2", R"("block_ff_dim":600,"full_attn_idxs":[0,2],"tie_embedding":false)");
  EXPECT_EQ(attention_layers(older), (std::vector<int>{0, 2}));
  EXPECT_EQ(older.tied_head, false);
}

TEST(Lfm2Config, AdjustsTheWidthOfTheFeedForward) {
  EXPECT_EQ(config_of("lfm2", kTypes).hidden, 256);  // two thirds of 384
  EXPECT_EQ(config_of("lfm2", R"("block_ff_dim":600,"full_attn_idxs":[0],"block_multiple_of":64)").hidden,
            448);  // 400, rounded up
  EXPECT_EQ(config_of("lfm2", kTypes + R"(,"block_auto_adjust_ff_dim":false)").hidden, 384);
}

TEST(Lfm2Config, ReadsExpertsBehindDenseLayers) {
  const std::string sizes = R"(,"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32)";
  const ModelConfig c = config_of("lfm2_moe", kTypes + sizes + R"(,"num_dense_layers":1)");
  EXPECT_FALSE(c.layers[0].routed);
  EXPECT_TRUE(c.layers[1].routed);
  EXPECT_TRUE(c.experts->sigmoid && c.experts->balanced && c.experts->shares_sum_to_1);
  EXPECT_EQ(c.hidden, 384);
  expect_refused("lfm2_moe", kTypes + sizes + R"(,"num_dense_layers":4)", "'num_dense_layers' is 4");
}

TEST(Lfm2Config, RefusesWhatItDoesNotKnow) {
  expect_refused("lfm2", R"("layer_types":["conv","full_attention","conv"])",
                 "'intermediate_size' is missing");
  expect_refused("lfm2", R"("intermediate_size":384,"layer_types":["conv"])",
                 "'layer_types' has 1 entries for 3 layers");
  expect_refused("lfm2", R"("intermediate_size":384,"layer_types":["conv","mamba","conv"])",
                 "layer 1 is of the type 'mamba'", ErrorCode::unsupported);
  expect_refused("lfm2", R"("intermediate_size":384,"full_attn_idxs":[3])", "'full_attn_idxs'");
  expect_refused("lfm2", R"("intermediate_size":384,"full_attn_idxs":[])", "no layer has attention",
                 ErrorCode::unsupported);
  expect_refused("lfm2", kTypes + R"(,"conv_L_cache":1)", "'conv_L_cache' is 1");
}

}  // namespace
}  // namespace kvtide
