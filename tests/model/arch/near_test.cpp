// near_test.cpp: architectures that differ from Llama in little: what their configurations say, and what is
// refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "model/config/longrope.h"
#include "model/read_config.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

ModelConfig config_of(const std::string& type, const std::string& more) {
  const std::string text =
      R"({"model_type":")" + type +
      R"(","hidden_size":64,"intermediate_size":128,"num_hidden_layers":8,"num_attention_heads":4,)"
      R"("num_key_value_heads":2,"max_position_embeddings":512,"vocab_size":100)" +
      (more.empty() ? "" : "," + more) + "}";
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

void expect_refused(const std::string& type, const std::string& more, const std::string& says,
                    ErrorCode code = ErrorCode::bad_format) {
  testing::expect_refused(code, says, [&] { config_of(type, more); });
}

TEST(SmolLm3, RotatesNothingInEveryFourthLayer_OrWhereItIsListed) {
  const ModelConfig usual = config_of("smollm3", "");
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(usual.ropes.at(static_cast<std::size_t>(usual.layers[i].rope)).still, i == 3 || i == 7) << i;
  EXPECT_EQ(usual.tied_head, true);
  const ModelConfig listed = config_of("smollm3", R"("no_rope_layers":[1,0,1,1,1,1,1,1])");
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(listed.layers[i].rope, i == 1 ? 1 : 0) << i;
  expect_refused("smollm3", R"("no_rope_layers":[1,0])", "'no_rope_layers' has 2 entries for 8 layers");
  expect_refused("smollm3", R"("no_rope_layers":[1,0,1,1,1,1,1,2])", "'no_rope_layers'");
  expect_refused("smollm3", R"("no_rope_layer_interval":0)", "'no_rope_layer_interval' is 0");
  expect_refused("smollm3", R"("mlp_bias":true)", "'mlp_bias' is true", ErrorCode::unsupported);
}

TEST(Mistral3, QueriesGrowWithTheContextThatWasTrainedFirst) {
  const std::string rope =
      R"("rope_parameters":{"rope_type":"yarn","rope_theta":1e6,"factor":16.0,"mscale":1.0,)"
      R"("mscale_all_dim":1.0,"original_max_position_embeddings":32)";
  const ModelConfig c = config_of("ministral3", rope + R"(,"llama_4_scaling_beta":0.1})");
  ASSERT_TRUE(c.query_growth);
  EXPECT_DOUBLE_EQ(c.query_growth->rate, 0.1);
  EXPECT_EQ(c.query_growth->period, 32);
  EXPECT_EQ(c.ropes.at(0).magnitude, 1.0);
  EXPECT_FALSE(config_of("ministral3", rope + "}").query_growth);
  expect_refused("ministral3", R"("rope_parameters":{"rope_type":"default","llama_4_scaling_beta":0.1})",
                 "original_max_position_embeddings' is missing");
}

// Four rotated pairs, 64 positions trained first.
std::string two_rotations(const std::string& lists,
                          const std::string& original = ",\"original_max_position_embeddings\":64") {
  return R"("head_dim":8,"rope_scaling":{"type":"longrope",)" + lists + "}" + original;
}

constexpr const char* kLists = R"("short_factor":[1.0,1.0,1.25,1.5],"long_factor":[1.0,2.0,4.0,8.0])";

TEST(Phi3, HasOneRotationForShortTextsAndOneForLongOnes) {
  EXPECT_EQ(config_of("phi3", R"("partial_rotary_factor":0.75)").rope_dims, 12);
  const std::vector<float> near = {1.0f, 1.0f, 1.25f, 1.5f}, far = {1.0f, 2.0f, 4.0f, 8.0f};
  for (const std::int64_t context : {0, 1, 64, 65, 512, 100000}) {
    ModelConfig c = config_of("phi3", two_rotations(kLists));
    choose_rotation(c, context);
    const bool short_text = context == 1 || context == 64;
    EXPECT_EQ(c.ropes.at(0).divisors, short_text ? near : far) << context;
    EXPECT_EQ(c.context_length, short_text ? 64 : 512) << context;
    EXPECT_EQ(c.short_rotation, short_text) << context;
    EXPECT_NEAR(c.ropes[0].magnitude.value(), std::sqrt(1.0 + std::log(8.0) / std::log(64.0)), 1e-7);
  }
  // Never trained for more: one rotation, whatever is asked.
  ModelConfig only = config_of("phi3", two_rotations(kLists, ",\"original_max_position_embeddings\":512"));
  EXPECT_EQ(only.ropes.at(0).divisors, near);
  choose_rotation(only, 16);
  EXPECT_EQ(only.context_length, 512);
  EXPECT_EQ(
      config_of("phi3", two_rotations(std::string(kLists) + R"(,"attention_factor":1.5)")).ropes[0].magnitude,
      1.5);
}

TEST(Phi3, RefusesRotationsThatDoNotFit) {
  expect_refused("phi3", two_rotations(kLists, ""), "original_max_position_embeddings' is missing");
  expect_refused("phi3", two_rotations(R"("short_factor":[1.0],"long_factor":[1.0,2.0,4.0,8.0])"),
                 "'short_factor' has 1 numbers; it needs 4");
  expect_refused("phi3", two_rotations(R"("short_factor":[1,1,1,1],"long_factor":[1,1,1,0])"), "long_factor");
  expect_refused("phi3", two_rotations(R"("short_factor":[1,1,1,1],"long_factor":[1,1,1,"8"])"),
                 "long_factor");
  expect_refused("phi3", R"("rope_scaling":{"type":"dynamic","factor":2.0})",
                 "rope scaling 'dynamic' is not supported", ErrorCode::unsupported);
}

TEST(Olmo, HasNormsBehindItsLayers_AndScalesOnlyLayersThatSeeEverything) {
  const ModelConfig two = config_of("olmo2", "");
  EXPECT_FALSE(two.pre_norms);
  EXPECT_TRUE(two.post_norms && two.head_norms && two.heads_normed_together);
  const ModelConfig three =
      config_of("olmo3", R"("sliding_window":16,"rope_scaling":{"rope_type":"yarn","factor":8.0,)"
                         R"("attention_factor":1.2,"original_max_position_embeddings":64})");
  EXPECT_EQ(three.architecture, "olmo2");
  for (std::size_t i = 0; i < 8; ++i) {
    const bool whole = i == 3 || i == 7;
    const RopeConfig& rope = three.ropes.at(static_cast<std::size_t>(three.layers[i].rope));
    EXPECT_EQ(three.layers[i].window.has_value(), !whole) << i;
    EXPECT_EQ(rope.scaling == RopeScaling::yarn, whole) << i;
    EXPECT_EQ(rope.base, 500000.0) << i;
  }
  expect_refused("olmo3", R"("layer_types":["full_attention"])", "'layer_types' has 1 entries for 8 layers");
}

TEST(Qwen3Moe, SaysWhichLayersHaveExperts) {
  const std::string sizes =
      R"("head_dim":16,"num_experts":6,"num_experts_per_tok":2,"moe_intermediate_size":32)";
  const ModelConfig c = config_of(
      "qwen3_moe", sizes + R"(,"decoder_sparse_step":2,"mlp_only_layers":[3],"norm_topk_prob":true)");
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(c.layers[i].routed, i % 2 == 1 && i != 3) << i;
  ASSERT_TRUE(c.experts);
  EXPECT_EQ(c.experts->slots(), 6);
  EXPECT_EQ(c.experts->chosen, 2);
  EXPECT_EQ(expert_width(c), 32);
  EXPECT_TRUE(c.experts->shares_sum_to_1);
  EXPECT_FALSE(config_of("qwen3_moe", sizes).experts->shares_sum_to_1);
  expect_refused("qwen3_moe", R"("num_experts":6,"moe_intermediate_size":32)",
                 "'num_experts_per_tok' is missing");
  expect_refused("qwen3_moe", R"("num_experts":6,"num_experts_per_tok":7,"moe_intermediate_size":32)",
                 "a token chooses 7 of 6 experts");
  expect_refused("qwen3_moe", sizes + R"(,"mlp_only_layers":[8])", "'mlp_only_layers'");
}

}  // namespace
}  // namespace kvtide
