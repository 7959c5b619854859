"""What `gguf_export` writes of Gemma 4, in the conventions of llama.cpp's files.

  - norms are stored as they are; heads, KV heads and widths of the feed-forward that differ are told for layers with a window apart or
    layer by layer;
  - the rotation of layers that see everything has one divisor per pair in `rope_freqs.weight`: 1, or 1e30 for pairs that stand still;
  - gate and up of experts are one tensor; what scales the router's input and an expert's output are `ffn_gate_inp.scale`, `ffn_down_exps.scale`.
"""

import gguf
import numpy as np

TOP = {"embed_tokens_per_layer.weight": "per_layer_token_embd.weight", "per_layer_model_projection.weight": "per_layer_model_proj.weight",
       "per_layer_projection_norm.weight": "per_layer_proj_norm.weight"}  # fmt: skip
NAMES = {
    "per_layer_input_gate.weight": "inp_gate.weight",
    "per_layer_projection.weight": "proj.weight",
    "post_per_layer_input_norm.weight": "post_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
}


def heads_of(config, kind: str) -> dict:
    """Of the layers that see everything, or of those with a window."""
    own = config.per_layer_config[config.layer_types.index(kind)]
    return dict(head_dim=own.head_dim, kv_heads=own.num_key_value_heads)


def add_tensor(writer: gguf.GGUFWriter, key: str, data: np.ndarray) -> bool:
    """Whether the tensor is one of those that are written here."""
    name = TOP.get(key.removeprefix("model."))
    if name is None and ".layers." in key:
        layer, inner = key.split(".layers.")[1].split(".", 1)
        name = f"blk.{layer}.{NAMES[inner]}" if inner in NAMES else None
    if name is not None:
        writer.add_tensor(name, np.ascontiguousarray(data))
    return name is not None


def add_rotation(writer: gguf.GGUFWriter, config) -> None:
    rope, dim = config.rope_parameters["full_attention"], heads_of(config, "full_attention")["head_dim"]
    turning = int(rope.get("partial_rotary_factor", 1.0) * dim / 2)
    writer.add_tensor("rope_freqs.weight", np.array([1.0] * turning + [1e30] * (dim // 2 - turning), dtype=np.float32))


def add_parameters(writer: gguf.GGUFWriter, config) -> None:
    whole, near, kinds = heads_of(config, "full_attention"), heads_of(config, "sliding_attention"), config.layer_types
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    slides = [kind == "sliding_attention" for kind in kinds]
    writer.add_head_count_kv([near["kv_heads"] if s else whole["kv_heads"] for s in slides])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(whole["head_dim"])
    writer.add_value_length(whole["head_dim"])
    writer.add_key_length_swa(near["head_dim"])
    writer.add_value_length_swa(near["head_dim"])
    writer.add_rope_dimension_count(whole["head_dim"])
    writer.add_rope_dimension_count_swa(near["head_dim"])
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern(slides)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    first, inner = config.num_hidden_layers - config.num_kv_shared_layers, config.intermediate_size
    wide = config.use_double_wide_mlp
    writer.add_feed_forward_length([2 * inner if i >= first else inner for i in range(config.num_hidden_layers)] if wide else inner)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
