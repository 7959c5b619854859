// gpt_oss_test.cpp: what configurations of gpt-oss say, and what is refused.
#include <gtest/gtest.h>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "model/read_config.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

const std::string kRope =
    R"(,"rope_scaling":{"rope_type":"yarn","factor":32,"original_max_position_embeddings":4096,"truncate":false})";

ModelConfig config_of(const std::string& more) {
  const std::string text =
      R"({"model_type":"gpt_oss","hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,)"
      R"("num_key_value_heads":2,"head_dim":16,"max_position_embeddings":512,"vocab_size":100,"num_local_experts":8,)"
      R"("num_experts_per_tok":4,"sliding_window":128)" +
      more + "}";
  const JsonValue json = JsonValue::parse(text, "config.json");
  return read_config(JsonFields(json, "config.json"));
}

TEST(GptOssConfig, SeesAWindowInEveryOtherLayer) {
  const ModelConfig c = config_of(kRope);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(c.layers[i].window.has_value(), i % 2 == 0) << i;
  EXPECT_EQ(c.layers[0].window, 128);
  EXPECT_TRUE(c.attention_sinks);
  EXPECT_FALSE(c.ropes[0].whole_pairs);
  EXPECT_EQ(c.experts->hidden, 96);
  EXPECT_TRUE(c.experts->biased && c.experts->shares_sum_to_1 && c.experts->gate_up_turns);
  EXPECT_FLOAT_EQ(c.experts->clamped->alpha, 1.702f);
  EXPECT_FLOAT_EQ(c.experts->clamped->limit, 7.0f);
}

TEST(GptOssConfig, NeedsItsRotation) {
  testing::expect_refused(ErrorCode::bad_format, "neither 'rope_parameters' nor 'rope_scaling'",
                          [] { config_of(""); });
}

}  // namespace
}  // namespace kvtide
