"""What `gguf_export` writes of Nemotron-H, in the conventions of llama.cpp's files: nemotron_h, and nemotron_h_moe with experts.

  - a layer is one block: those with KV heads have attention, those with a feed-forward width have that or experts, others Mamba-2;
  - every norm before a block is `attn_norm`; experts are stacked and have no gate, nor has the one that every token passes.
"""

import gguf
import numpy as np

import gguf_mamba

ARCHITECTURES = ("nemotron_h", "nemotron_h_moe")
TOP = {"model.embeddings.weight": "token_embd.weight", "model.norm_f.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
NAMES = {
    "q_proj.weight": "attn_q.weight",
    "k_proj.weight": "attn_k.weight",
    "v_proj.weight": "attn_v.weight",
    "o_proj.weight": "attn_output.weight",
    "up_proj.weight": "ffn_up.weight",
    "down_proj.weight": "ffn_down.weight",
    "gate.weight": "ffn_gate_inp.weight",
    "gate.e_score_correction_bias": "exp_probs_b.bias",
    "experts.up_proj": "ffn_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "shared_experts.down_proj.weight": "ffn_down_shexp.weight",
}


def add_tensor(writer: gguf.GGUFWriter, key: str, data: np.ndarray, config) -> None:
    if key in TOP:
        writer.add_tensor(TOP[key], data)
        return
    blk, inner = f"blk.{key.split('.')[2]}.", key.split(".", 3)[3]
    if inner == "norm.weight":
        writer.add_tensor(blk + "attn_norm.weight", data)
    elif inner.removeprefix("mixer.") in NAMES:
        writer.add_tensor(blk + NAMES[inner.removeprefix("mixer.")], np.ascontiguousarray(data))
    else:
        gguf_mamba.add_space(writer, blk, inner.removeprefix("mixer."), data, config)


def add_parameters(writer: gguf.GGUFWriter, config, arch: str) -> None:
    kinds = config.layers_block_type
    routed = arch == "nemotron_h_moe"
    inner = config.moe_intermediate_size if routed else config.intermediate_size
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(len(kinds))
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv([config.num_key_value_heads if kind == "full_attention" else 0 for kind in kinds])
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_feed_forward_length([inner if kind in ("mlp", "moe") else 0 for kind in kinds])
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)  # llama.cpp asks for both
    gguf_mamba.add_sizes(writer, config)
    if not routed:
        return
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(inner)
    writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_group_count(config.n_group)
