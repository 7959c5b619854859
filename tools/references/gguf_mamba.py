"""What `gguf_export` writes of models with Mamba-2 layers: mamba2, granite, granitemoe, granitehybrid, in the conventions of llama.cpp's files.

  - the decay is stored as -exp(A_log), norms of a recurrence group by group;
  - Granite's queries and keys have the rows of rotation pairs side by side, as those of llama. Positions that turn nothing are told by
    rope.scaling.finetuned. A single expert for every token is an ordinary feed-forward; else it lies beside the others.
  - files of Mamba-2 say 0 heads and a feed-forward of 0.
"""

import gguf
import numpy as np

ARCHITECTURES = ("mamba2", "granite", "granitemoe", "granitehybrid")
SPACE_NAMES = {"in_proj.weight": "ssm_in.weight", "conv1d.weight": "ssm_conv1d.weight", "conv1d.bias": "ssm_conv1d.bias",
               "dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d", "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight"}  # fmt: skip


def add_tensor(writer: gguf.GGUFWriter, key: str, data: np.ndarray, config) -> bool:
    """Whether the tensor is one of those that are written here."""
    if key.startswith("backbone."):
        top = {"backbone.embeddings.weight": "token_embd.weight", "backbone.norm_f.weight": "output_norm.weight"}
        if key in top:
            writer.add_tensor(top[key], data)
            return True
        if ".mixer." not in key:
            writer.add_tensor(f"blk.{key.split('.')[2]}.attn_norm.weight", data)
            return True
    blk = f"blk.{key.split('.')[2]}." if ".layers." in key else ""
    for inside in (".mixer.", ".mamba."):
        if inside in key:
            add_space(writer, blk, key.split(inside)[1], data, config)
            return True
    if ".block_sparse_moe.router." in key:
        writer.add_tensor(blk + "ffn_gate_inp.weight", data)
    elif ".shared_mlp." in key:
        suffix = "_shexp.weight" if getattr(config, "num_local_experts", 0) else ".weight"
        parts = zip(("gate", "up"), np.split(data, 2)) if ".input_linear." in key else [("down", data)]
        for name, values in parts:
            writer.add_tensor(f"{blk}ffn_{name}{suffix}", np.ascontiguousarray(values))
    else:
        return False
    return True


def add_space(writer: gguf.GGUFWriter, blk: str, inner: str, data: np.ndarray, config) -> None:
    if inner == "A_log":
        data = -np.exp(data.astype(np.float64)).astype(np.float32)
    if inner in ("A_log", "D"):
        data = data.reshape(-1, 1)
    elif inner == "conv1d.weight":
        data = data.squeeze(1)
    elif inner == "norm.weight":
        data = data.reshape(sizes(config)["groups"], -1)
    writer.add_tensor(blk + SPACE_NAMES[inner], np.ascontiguousarray(data))


def sizes(config) -> dict:
    if config.model_type == "mamba2":
        heads, dim, state, groups, taps = config.num_heads, config.head_dim, config.state_size, config.n_groups, config.conv_kernel
    elif config.model_type == "nemotron_h":
        heads, dim, state, groups, taps = config.mamba_num_heads, config.mamba_head_dim, config.ssm_state_size, config.n_groups, config.conv_kernel  # fmt: skip
    else:
        heads, dim, state, groups, taps = config.mamba_n_heads, config.mamba_d_head, config.mamba_d_state, config.mamba_n_groups, config.mamba_d_conv  # fmt: skip
    return dict(heads=heads, head_dim=dim, state=state, groups=groups, taps=taps)


def add_sizes(writer: gguf.GGUFWriter, config) -> None:
    s = sizes(config)
    writer.add_ssm_conv_kernel(s["taps"])
    writer.add_ssm_inner_size(s["heads"] * s["head_dim"])
    writer.add_ssm_state_size(s["state"])
    writer.add_ssm_time_step_rank(s["heads"])
    writer.add_ssm_group_count(s["groups"])


def add_mamba2(writer: gguf.GGUFWriter, config) -> None:
    writer.add_context_length(2**20)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    add_sizes(writer, config)


def add_granite(writer: gguf.GGUFWriter, config, arch: str) -> None:
    """Beside what llama has."""
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)
    if arch == "granite":
        return
    if config.num_local_experts:
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if getattr(config, "shared_intermediate_size", 0):
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if arch == "granitehybrid":
        add_sizes(writer, config)
        writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")


def head_counts(config) -> list[int]:
    """KV heads layer by layer."""
    kinds = config.layer_types
    return [0 if kind == "linear_attention" else config.num_key_value_heads for kind in kinds]


def inner_width(config) -> int:
    routed = getattr(config, "num_local_experts", None)
    return config.shared_intermediate_size if routed == 0 else config.intermediate_size
