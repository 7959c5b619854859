// nemotron_h_test.cpp: what configurations of Nemotron-H say, and what is refused.
#include <gtest/gtest.h>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "model/memory_shape.h"
#include "model/read_config.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

// layers: the key that names them, with its value.
ModelConfig config_of(const std::string& layers, const std::string& more = "") {
  const std::string text =
      R"({"model_type":"nemotron_h","hidden_size":64,"intermediate_size":96,"num_attention_heads":4,)"
      R"("num_key_value_heads":2,"head_dim":24,"vocab_size":100,"mamba_num_heads":8,"mamba_head_dim":12,)"
      R"("ssm_state_size":16,"n_groups":2,"n_routed_experts":8,"num_experts_per_tok":2,)"
      R"("moe_intermediate_size":20,"moe_shared_expert_intermediate_size":28,)" +
      layers + more + "}";
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

void expect_refused(const std::string& layers, const std::string& more, const std::string& says,
                    ErrorCode code = ErrorCode::bad_format) {
  testing::expect_refused(code, says, [&] { config_of(layers, more); });
}

TEST(NemotronHConfig, ALayerIsOneBlock) {
  const ModelConfig c = config_of(R"("hybrid_override_pattern":"M-M*E")");
  ASSERT_EQ(c.layers.size(), 5u);
  EXPECT_EQ(c.layers[0].mixer, Mixer::state_space);
  EXPECT_EQ(c.layers[1].mixer, Mixer::none);
  EXPECT_EQ(c.layers[3].mixer, Mixer::attention);
  EXPECT_EQ(attention_layers(c), std::vector<int>{3});
  EXPECT_FALSE(c.layers[0].feed_forward || c.layers[3].feed_forward);
  EXPECT_TRUE(c.layers[1].feed_forward && !c.layers[1].routed);
  EXPECT_TRUE(c.layers[4].feed_forward && c.layers[4].routed);
  EXPECT_FALSE(c.gated);
  EXPECT_EQ(c.activation, Activation::squared_relu);
  EXPECT_TRUE(c.ropes[0].still);
  EXPECT_EQ(c.state_space->inner(), 96);
  EXPECT_EQ(c.experts->shared, 28);
  EXPECT_TRUE(c.experts->sigmoid && c.experts->balanced && c.experts->shares_sum_to_1);
  // Rows for the layer with attention, two tensors for each recurrence.
  const KvSpec shape = memory_shape(c);
  EXPECT_EQ(shape.layers.size(), 1u);
  EXPECT_EQ(shape.recurrent.size(), 4u);
}

TEST(NemotronHConfig, LayersAreListedInWordsOrInLetters) {
  const ModelConfig letters = config_of(R"("hybrid_override_pattern":"M-*E")"),
                    words = config_of(R"("layers_block_type":["mamba","mlp","attention","moe"])"),
                    today =
                        config_of(R"("layers_block_type":["linear_attention","mlp","full_attention","moe"])");
  ASSERT_EQ(words.layers.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    for (const ModelConfig* other : {&words, &today}) {
      EXPECT_EQ(letters.layers[i].mixer, other->layers[i].mixer) << i;
      EXPECT_EQ(letters.layers[i].feed_forward, other->layers[i].feed_forward) << i;
      EXPECT_EQ(letters.layers[i].routed, other->layers[i].routed) << i;
    }
}

TEST(NemotronHConfig, ModelsWithoutExpertsOrRecurrenceHaveNone) {
  EXPECT_FALSE(config_of(R"("hybrid_override_pattern":"M-*")").experts);
  const ModelConfig plain = config_of(R"("hybrid_override_pattern":"*-")");
  EXPECT_FALSE(plain.state_space || carries(plain));
}

TEST(NemotronHConfig, RefusesWhatItDoesNotKnow) {
  expect_refused(R"("n_group":1)", "", "neither 'layers_block_type' nor 'hybrid_override_pattern'");
  expect_refused(R"("hybrid_override_pattern":"M?")", "", "layer 1 is of the type '?'",
                 ErrorCode::unsupported);
  const std::string routed = R"("hybrid_override_pattern":"ME")";
  expect_refused(routed, R"(,"moe_latent_size":16)", "'moe_latent_size'", ErrorCode::unsupported);
  expect_refused(routed, R"(,"mlp_bias":true)", "'mlp_bias' is true", ErrorCode::unsupported);
  expect_refused(routed, R"(,"mlp_hidden_act":"silu")", "'mlp_hidden_act' must be relu2",
                 ErrorCode::unsupported);
  expect_refused(routed, R"(,"mamba_hidden_act":"gelu")", "'mamba_hidden_act' must be silu",
                 ErrorCode::unsupported);
  expect_refused(routed, R"(,"time_step_limit":[0.01,1.0])", "'time_step_limit' must be from 0 to Infinity",
                 ErrorCode::unsupported);
}

}  // namespace
}  // namespace kvtide
