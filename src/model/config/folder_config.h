// folder_config.h: what the config.json of several architectures have in common. For the files of arch/.
#pragma once

#include <cstdint>

#include "base/json/json_fields.h"
#include "model/config/config.h"

namespace kvtide {

// Sizes, heads, norms, rotation and the head of Llama and its relatives. Throws Error: bad_format,
// unsupported (an option that changes the arithmetic and is not known here). hidden_key: of the width inside
// the feed-forward.
void read_llama_like(const JsonFields& json, ModelConfig& config,
                     const char* hidden_key = "intermediate_size");

// One description of a rotation: rope_parameters of today, rope_theta and rope_scaling of before.
// head_dim and the trained context are taken from `config`; `base` is the fallback of rope_theta.
RopeConfig read_folder_rope(const JsonFields& json, const ModelConfig& config, double base);
// The same from one object that has it all, but for the context that was trained first, perhaps (0: not known).
RopeConfig read_rope_object(const JsonFields& rope, const ModelConfig& config, double base,
                            double original = 0.0);

// Gives the layers that `layer_types` calls sliding_attention their window; all of them where the list is
// absent and `window_from` layers have passed.
void read_windows(const JsonFields& json, ModelConfig& config, std::int64_t window_from);

// Experts behind a router of one matrix; `count` and `hidden` are the keys of their number and of the width inside.
ExpertsConfig read_experts(const JsonFields& json, const char* count,
                           const char* hidden = "moe_intermediate_size");

// Which layers have experts: every decoder_sparse_step-th, without those of mlp_only_layers.
void read_routed_layers(const JsonFields& json, ModelConfig& config);

// Refuses a feed-forward with another activation than silu.
void require_silu(const JsonFields& json);

// Refuses a key that is present and has another value than the arithmetic here stands for.
void require_absent_or(const JsonFields& json, const char* key, bool value);

}  // namespace kvtide
