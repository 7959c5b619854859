// zaya_config_test.cpp: the config.json of both ages of ZAYA1, and what is refused of it.
#include <gtest/gtest.h>

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

// A config of today; members of `more` stand behind and those of `without` are left out.
std::string today(const std::string& more = "", const std::string& without = "") {
  const std::pair<std::string, std::string> members[] = {
      {"model_type", "\"zaya\""},        {"hidden_size", "2048"},      {"num_hidden_layers", "4"},
      {"num_attention_heads", "8"},      {"num_key_value_heads", "2"}, {"head_dim", "128"},
      {"moe_intermediate_size", "2048"}, {"num_experts", "16"},        {"num_experts_per_tok", "1"},
      {"router_hidden_size", "256"},     {"vocab_size", "262272"}};
  std::string text;
  for (const auto& [key, value] : members)
    if (key != without) text += (text.empty() ? "{\"" : ",\"") + key + "\":" + value;
  return text + (more.empty() ? "" : "," + more) + "}";
}

std::string halves(const std::string& more = "") {
  return R"({"model_type":"zaya","cca":true,"num_hidden_layers":80,"hidden_size":2048,"num_attention_heads":8,)"
         R"("num_key_value_heads":2,"kv_channels":128,"ffn_hidden_size":4096,"num_experts":16,"rope_theta":1e6,)"
         R"("vocab_size":262272)" +
         (more.empty() ? "" : "," + more) + "}";
}

void expect_bad(ErrorCode code, const std::string& says, const std::string& text) {
  testing::expect_refused(code, says, [&] { config_of(text); });
}

TEST(ZayaConfig, OfTodayCountsBlocks) {
  const ModelConfig c = config_of(today());
  EXPECT_EQ(c.architecture, "zaya");
  EXPECT_EQ(c.layers.size(), 4u);
  EXPECT_EQ(c.heads, 8);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.hidden, 2048);
  EXPECT_EQ(c.rope_dims, 64);
  EXPECT_EQ(c.ropes.at(0).base, 5e6);
  EXPECT_EQ(c.context_length, 131072);
  EXPECT_EQ(c.tied_head, true);
  EXPECT_TRUE(c.convolved);
  EXPECT_TRUE(c.scaled_residual);
  EXPECT_FALSE(c.temperature_is_log);
  ASSERT_TRUE(c.experts);
  EXPECT_EQ(c.experts->count, 16);
  EXPECT_EQ(c.experts->router_width, 256);
  EXPECT_EQ(c.experts->skip, SkipSlot::zero);
  for (const LayerConfig& layer : c.layers) EXPECT_FALSE(layer.window);
}

TEST(ZayaConfig, LayersOfEachTypeHaveTheirWindowAndTheirRotation) {
  const ModelConfig c = config_of(today(
      R"("layer_types":["hybrid_sliding","hybrid","hybrid_sliding","hybrid"],"sliding_window":512,)"
      R"("rope_parameters":{"rope_type":"default","hybrid":{"rope_theta":2e6,"partial_rotary_factor":0.5},)"
      R"("hybrid_sliding":{"rope_theta":2e4,"partial_rotary_factor":0.5}})"));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(c.layers[i].window, i % 2 == 0 ? std::optional<std::int64_t>(512) : std::nullopt);
    EXPECT_EQ(c.ropes.at(static_cast<std::size_t>(c.layers[i].rope)).base, i % 2 == 0 ? 2e4 : 2e6);
  }
}

TEST(ZayaConfig, OfBeforeCountsHalves_AndMayListHeads) {
  const ModelConfig c = config_of(halves(R"("clamp_temp":true,"zaya_mlp_expansion":128)"));
  EXPECT_EQ(c.layers.size(), 40u);
  EXPECT_EQ(c.heads, 8);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.hidden, 2048);
  EXPECT_EQ(c.ropes.at(0).base, 1e6);
  EXPECT_EQ(c.experts->skip, SkipSlot::identity);
  EXPECT_EQ(c.experts->router_width, 128);
  EXPECT_TRUE(c.temperature_is_log);
}

TEST(ZayaConfig, RefusesWhatWouldNeedOtherArithmetic) {
  expect_bad(ErrorCode::unsupported, "'num_experts_per_tok' is 2; only 1 is supported",
             today("\"num_experts_per_tok\":2", "num_experts_per_tok"));
  expect_bad(ErrorCode::unsupported, "'moe_router_topk' is 2", halves("\"moe_router_topk\":2"));
  expect_bad(ErrorCode::unsupported, "'cca_time0' is 3; only 2 is supported", today("\"cca_time0\":3"));
  expect_bad(ErrorCode::unsupported, "'hidden_act' is 'gelu'", today("\"hidden_act\":\"gelu\""));
  expect_bad(ErrorCode::unsupported, "'attention_bias'", today("\"attention_bias\":true"));
  expect_bad(ErrorCode::unsupported, "'zaya_use_mod'", halves("\"zaya_use_mod\":false"));
  expect_bad(ErrorCode::unsupported, "'sliding_window' of a config that counts halves",
             halves("\"sliding_window\":4096"));
  expect_bad(
      ErrorCode::unsupported, "rotate",
      today(
          R"("layer_types":["hybrid_sliding","hybrid","hybrid","hybrid"],"sliding_window":512,)"
          R"("rope_parameters":{"hybrid":{"partial_rotary_factor":0.5},"hybrid_sliding":{"partial_rotary_factor":0.25}})"));
}

TEST(ZayaConfig, RefusesNumbersThatMakeNoSense) {
  expect_bad(ErrorCode::bad_format, "'num_experts' is 0", today("\"num_experts\":0", "num_experts"));
  expect_bad(ErrorCode::bad_format, "'num_experts' is missing", today("", "num_experts"));
  expect_bad(ErrorCode::bad_format, "'router_hidden_size' is -1",
             today("\"router_hidden_size\":-1", "router_hidden_size"));
  expect_bad(ErrorCode::bad_format, "8 query heads cannot share 3 KV heads",
             today("\"num_key_value_heads\":3", "num_key_value_heads"));
  expect_bad(
      ErrorCode::bad_format, "1 KV heads of 5 cannot be halved",
      R"({"model_type":"zaya","hidden_size":32,"num_hidden_layers":1,"num_attention_heads":1,"num_key_value_heads":1,)"
      R"("head_dim":5,"moe_intermediate_size":8,"num_experts":2,"vocab_size":10})");
  expect_bad(ErrorCode::bad_format, "'layer_types' has 1 entries for 4 layers",
             today("\"layer_types\":[\"hybrid\"]"));
  expect_bad(ErrorCode::bad_format, "'layer_types' has 0 entries for 4 layers", today("\"layer_types\":[]"));
  expect_bad(ErrorCode::unsupported, "layer 1 is of the type 'mamba'",
             today(R"("layer_types":["hybrid","mamba","hybrid","hybrid"])"));
  expect_bad(ErrorCode::bad_format, "'sliding_window' is missing",
             today(R"("layer_types":["hybrid","hybrid_sliding","hybrid","hybrid"])"));
  expect_bad(ErrorCode::bad_format, "'partial_rotary_factor' of 0",
             today(R"("rope_parameters":{"hybrid":{"partial_rotary_factor":0}})"));
  expect_bad(ErrorCode::bad_format, "'kvtide_skip_slot' is 'sometimes'; it must be identity or zero",
             today("\"kvtide_skip_slot\":\"sometimes\""));
  expect_bad(ErrorCode::bad_format, "'num_hidden_layers' is 3; attentions and experts alternate",
             R"({"model_type":"zaya","num_hidden_layers":3,"num_attention_heads":8})");
  expect_bad(ErrorCode::bad_format, "'cca_num_q_heads' must hold 80 numbers",
             halves("\"cca_num_q_heads\":[8,0]"));
}

}  // namespace
}  // namespace kvtide
