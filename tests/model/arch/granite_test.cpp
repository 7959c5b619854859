// granite_test.cpp: what configurations of Granite and of Mamba-2 say, and what is refused.
#include <gtest/gtest.h>

#include <span>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "model/config_file.h"
#include "model/read_config.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

ModelConfig config_of(const std::string& text) {
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

std::string hybrid(const std::string& more) {
  return R"({"model_type":"granitemoehybrid","hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,)"
         R"("num_key_value_heads":2,"intermediate_size":32,"max_position_embeddings":512,"vocab_size":100,)"
         R"("shared_intermediate_size":48,"num_local_experts":4,"num_experts_per_tok":2,"mamba_d_state":16,)"
         R"("layer_types":["mamba","attention","linear_attention"],"mamba_n_heads":8)" +
         more + "}";
}

std::string mamba(const std::string& more) {
  return R"({"model_type":"mamba2","hidden_size":32,"num_hidden_layers":2,"num_heads":4,"head_dim":16,)"
         R"("state_size":24,"n_groups":2,"vocab_size":100)" +
         more + "}";
}

void expect_refused(const std::string& text, const std::string& says,
                    ErrorCode code = ErrorCode::bad_format) {
  testing::expect_refused(code, says, [&] { config_of(text); });
}

TEST(GraniteConfig, LayersWithMamba2StandBesideAttentionThatTurnsNothing) {
  const ModelConfig c = config_of(hybrid(R"(,"residual_multiplier":0.22,"logits_scaling":8)"));
  EXPECT_EQ(attention_layers(c), std::vector<int>{1});
  EXPECT_EQ(c.layers[2].mixer, Mixer::state_space);
  EXPECT_TRUE(c.ropes[0].still && carries(c));
  EXPECT_EQ(c.residual_scale, 0.22f);
  EXPECT_EQ(c.logit_scale, 0.125f);
  EXPECT_EQ(c.state_space->head_dim, 16);  // 2 * 64 / 8
  EXPECT_EQ(c.state_space->channels(), 160);
  EXPECT_EQ(c.experts->shared, 48);
  EXPECT_TRUE(c.experts->shares_sum_to_1);
  EXPECT_FALSE(config_of(hybrid(R"(,"position_embedding_type":"rope")")).ropes[0].still);
}

TEST(GraniteConfig, OneExpertAloneIsAFeedForward) {
  const std::string text = R"({"model_type":"granitemoehybrid","hidden_size":64,"num_hidden_layers":1,)"
                           R"("num_attention_heads":4,"intermediate_size":32,"max_position_embeddings":512,)"
                           R"("vocab_size":100,"shared_intermediate_size":48,"num_local_experts":0,)"
                           R"("layer_types":["attention"]})";
  const ModelConfig c = config_of(text);
  EXPECT_FALSE(c.experts || c.state_space);
  EXPECT_EQ(c.hidden, 48);
}

TEST(GraniteConfig, RefusesWhatItDoesNotKnow) {
  expect_refused(hybrid(R"(,"position_embedding_type":"alibi")"), "'position_embedding_type' is 'alibi'",
                 ErrorCode::unsupported);
  expect_refused(hybrid(R"(,"mamba_n_groups":3)"), "8 heads of Mamba-2 cannot share 3 groups");
  expect_refused(hybrid(R"(,"mamba_d_conv":1)"), "'mamba_d_conv' is 1");
  expect_refused(hybrid(R"(,"time_step_limit":[0.0,0.1])"), "'time_step_limit' must be from 0 to Infinity",
                 ErrorCode::unsupported);
  expect_refused(hybrid(R"(,"hidden_act":"gelu")"), "'hidden_act' must be silu", ErrorCode::unsupported);
  std::string other = hybrid("");
  other.replace(other.find("\"mamba\""), 7, "\"conv\"");
  expect_refused(other, "layer 0 is of the type 'conv'", ErrorCode::unsupported);
}

TEST(Mamba2Config, HasNeitherAttentionNorFeedForward) {
  const ModelConfig c = config_of(mamba(R"(,"time_step_limit":[0.0,{"__float__":"Infinity"}])"));
  EXPECT_TRUE(attention_layers(c).empty());
  EXPECT_FALSE(c.layers[1].feed_forward);
  EXPECT_EQ(c.state_space->inner(), 64);
  EXPECT_TRUE(c.state_space->conv_biased);
  expect_refused(mamba(R"(,"norm_before_gate":true)"), "'norm_before_gate' is true", ErrorCode::unsupported);
  expect_refused(R"({"model_type":"mamba2","hidden_size":32,"num_hidden_layers":2,"vocab_size":100,)"
                 R"("num_heads":4})",
                 "'state_size' is missing");
}

// Python writes what JSON has no word for.
TEST(Mamba2Config, InfinityOfAFileIsRead_OutsideOfStringsOnly) {
  const testing::TemporaryFolder folder;
  const auto written = [&](const std::string& text) {
    return folder.write("config.json", std::as_bytes(std::span(text)));
  };
  const std::string path = written(mamba(R"(,"time_step_limit":[0.0, Infinity],"note":"a \"NaN\" stays")"));
  const JsonValue json = read_config_file(path);
  EXPECT_EQ(*json.find("note")->text(), "a \"NaN\" stays");
  EXPECT_EQ(read_config(JsonFields(json, path)).state_space->state, 24);
  written(mamba(R"(,"time_step_limit":[0.0, -Infinity])"));
  testing::expect_refused(ErrorCode::unsupported, "'time_step_limit' must be", [&] {
    const JsonValue other = read_config_file(path);
    read_config(JsonFields(other, path));
  });
}

}  // namespace
}  // namespace kvtide
