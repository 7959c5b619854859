#include "eval/known_models.h"

#include <string>

#include "base/json/json_value.h"
#include "model/read_config.h"

namespace kvtide {
namespace {

// Those numbers of a model's config.json that decide its shape. Qwen 3.5's were compared with copies of the files; of
// the others a test checks that their parameters come out as many as the makers tell, within 2%.
constexpr KnownModel kModels[] = {
    {"qwen3-0.6b",
     R"({"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,
      "num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,
      "max_position_embeddings":40960,"tie_word_embeddings":true})"},
    {"qwen3-30b-a3b",
     R"({"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":48,
      "num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"vocab_size":151936,
      "max_position_embeddings":40960,"num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768,
      "norm_topk_prob":true})"},
    {"qwen3-next-80b-a3b", R"({"model_type":"qwen3_next","hidden_size":2048,"intermediate_size":5120,
      "num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,"vocab_size":151936,
      "max_position_embeddings":262144,"full_attention_interval":4,"linear_num_key_heads":16,
      "linear_num_value_heads":32,"num_experts":512,"num_experts_per_tok":10,"moe_intermediate_size":512,
      "shared_expert_intermediate_size":512})"},
    {"qwen3.5-0.8b", R"({"model_type":"qwen3_5_text","hidden_size":1024,"intermediate_size":3584,
      "num_hidden_layers":24,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":256,"vocab_size":248320,
      "max_position_embeddings":262144,"full_attention_interval":4,"linear_num_key_heads":16,
      "linear_num_value_heads":16,"tie_word_embeddings":true})"},
    {"qwen3.5-2b", R"({"model_type":"qwen3_5_text","hidden_size":2048,"intermediate_size":6144,
      "num_hidden_layers":24,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":256,"vocab_size":248320,
      "max_position_embeddings":262144,"full_attention_interval":4,"linear_num_key_heads":16,
      "linear_num_value_heads":16,"tie_word_embeddings":true})"},
    {"qwen3.5-4b", R"({"model_type":"qwen3_5_text","hidden_size":2560,"intermediate_size":9216,
      "num_hidden_layers":32,"num_attention_heads":16,"num_key_value_heads":4,"head_dim":256,"vocab_size":248320,
      "max_position_embeddings":262144,"full_attention_interval":4,"linear_num_key_heads":16,
      "linear_num_value_heads":32,"tie_word_embeddings":true})"},
    {"lfm2-350m", R"({"model_type":"lfm2","hidden_size":1024,"block_ff_dim":6656,"num_hidden_layers":16,
      "num_attention_heads":16,"num_key_value_heads":8,"vocab_size":65536,"max_position_embeddings":128000,
      "conv_L_cache":3,"full_attn_idxs":[2,5,8,10,12,14]})"},
    {"lfm2-1.2b", R"({"model_type":"lfm2","hidden_size":2048,"block_ff_dim":12288,"num_hidden_layers":16,
      "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":65536,"max_position_embeddings":128000,
      "conv_L_cache":3,"full_attn_idxs":[2,5,8,10,12,14]})"},
    {"gpt-oss-20b",
     R"({"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":24,
      "num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"vocab_size":201088,
      "max_position_embeddings":131072,"sliding_window":128,"num_local_experts":32,"num_experts_per_tok":4,
      "rope_scaling":{"rope_type":"yarn","factor":32.0,"original_max_position_embeddings":4096,"truncate":false}})"},
    {"gpt-oss-120b",
     R"({"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":36,
      "num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"vocab_size":201088,
      "max_position_embeddings":131072,"sliding_window":128,"num_local_experts":128,"num_experts_per_tok":4,
      "rope_scaling":{"rope_type":"yarn","factor":32.0,"original_max_position_embeddings":4096,"truncate":false}})"},
    {"deepseek-v3", R"({"model_type":"deepseek_v3","hidden_size":7168,"intermediate_size":18432,
      "num_hidden_layers":61,"num_attention_heads":128,"num_key_value_heads":128,"vocab_size":129280,
      "max_position_embeddings":163840,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,
      "qk_rope_head_dim":64,"v_head_dim":128,"n_routed_experts":256,"n_shared_experts":1,"num_experts_per_tok":8,
      "moe_intermediate_size":2048,"n_group":8,"topk_group":4,"first_k_dense_replace":3})"},
    {"gemma-4-e2b", R"({"model_type":"gemma4_text","hidden_size":1536,"intermediate_size":6144,
      "num_hidden_layers":35,"num_attention_heads":8,"num_key_value_heads":1,"vocab_size":262144,
      "max_position_embeddings":131072,"num_kv_shared_layers":20,"use_double_wide_mlp":true,"sliding_window":512,
      "layer_types":["sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
      "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
      "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
      "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
      "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
      "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
      "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention"]})"},
    {"gemma-4-e4b", R"({"model_type":"gemma4_text","hidden_size":2560,"intermediate_size":10240,
      "num_hidden_layers":42,"num_attention_heads":8,"num_key_value_heads":2,"vocab_size":262144,
      "max_position_embeddings":131072,"num_kv_shared_layers":18})"},
    {"gemma-4-26b-a4b", R"({"model_type":"gemma4_text","hidden_size":2816,"intermediate_size":2112,
      "num_hidden_layers":30,"num_attention_heads":16,"num_key_value_heads":8,"vocab_size":262144,
      "max_position_embeddings":262144,"sliding_window":1024,"hidden_size_per_layer_input":0,
      "attention_k_eq_v":true,"num_global_key_value_heads":2,"enable_moe_block":true,"num_experts":128,
      "top_k_experts":8,"moe_intermediate_size":704})"},
    {"gemma-4-31b", R"({"model_type":"gemma4_text","hidden_size":5376,"intermediate_size":21504,
      "num_hidden_layers":60,"num_attention_heads":32,"num_key_value_heads":16,"vocab_size":262144,
      "max_position_embeddings":262144,"sliding_window":1024,"hidden_size_per_layer_input":0,
      "attention_k_eq_v":true,"num_global_key_value_heads":4})"},
    {"smollm3-3b",
     R"({"model_type":"smollm3","hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,
      "num_attention_heads":16,"num_key_value_heads":4,"vocab_size":128256,"max_position_embeddings":65536})"},
};

}  // namespace

std::span<const KnownModel> known_models() { return kModels; }

ModelConfig config_of(const KnownModel& model) {
  const std::string name(model.name);
  const JsonValue json = JsonValue::parse(model.config, name);
  return read_config(JsonFields(json, name));
}

}  // namespace kvtide
