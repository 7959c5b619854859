"""Writes a `transformers` model as a GGUF file with f32 weights, in the conventions of llama.cpp's files.

What differs from the checkpoint's own layout, and therefore what this file must get right:
  - llama: GGUF keeps the rows of each query and key head so that rotation pairs are neighbours (2i, 2i+1); the
    checkpoint keeps them half a head apart (i, i + head_dim/2). The other architectures keep halves.
  - llama with "llama3" rope scaling: the file holds one divisor per pair in `rope_freqs.weight`, no metadata key.
  - gemma3: RMS norm weights are stored as 1 + w. The embedding scale sqrt(hidden) is left to the runtime, and so are
    the layer pattern (every sixth layer global), the base of local layers (10000) and the attention scale
    (head_dim ** -0.5; a 27B model would differ).
  - smollm3, mistral3: rows as those of llama. Which layers of smollm3 rotate nothing is left to the runtime.
  - phi3: queries, keys and values stay one tensor, gate and up another.
  - olmo2: also of OLMo 3, whose layers with a window are listed.
  - qwen3moe, lfm2moe: the matrices of all experts of a layer stacked, gate and up apart.
  - qwen3next, qwen35, qwen35moe: norms but that of a delta net are stored as 1 + w, the decay as -exp(A_log). qwen3next has
    the rows of in_proj_qkvz sorted; the others have value heads tiled over key heads where folders have them grouped.
  - gpt-oss: gate and up of an expert apart, where folders have their rows in turn and inputs before outputs.
  - deepseek2: one KV head, the latent; keys and values are made of it by two tensors, that of the keys transposed.
  - gemma4: gguf_gemma4.py.
  - mamba2, granite, granitemoe, granitehybrid: gguf_mamba.py.
  - nemotron_h, nemotron_h_moe: gguf_nemotron.py.
  - lfm2, lfm2moe: layers without attention are those with 0 KV heads; the last norm is named token_embd_norm.
"""

import math

import gguf
import numpy as np

import gguf_gemma4
import gguf_mamba
import gguf_nemotron
import mxfp4
import toy_vocab

LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_LAYER_NAMES = LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OLMO_LAYER_NAMES = LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
PHI_LAYER_NAMES = LAYER_NAMES | {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
QWEN_MOE_LAYER_NAMES = LAYER_NAMES | {"mlp.gate": "ffn_gate_inp"}
LFM_LAYER_NAMES = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
    "feed_forward.gate": "ffn_gate_inp",
}
QWEN_LINEAR_LAYER_NAMES = QWEN_MOE_LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
DEEPSEEK_LAYER_NAMES = QWEN_MOE_LAYER_NAMES | {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
GPT_OSS_LAYER_NAMES = LAYER_NAMES | {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"}
NAMES = {
    "gpt-oss": GPT_OSS_LAYER_NAMES,
    "deepseek2": DEEPSEEK_LAYER_NAMES,
    "qwen3next": QWEN_LINEAR_LAYER_NAMES,
    "qwen35": QWEN_LINEAR_LAYER_NAMES,
    "qwen35moe": QWEN_LINEAR_LAYER_NAMES,
    "gemma3": GEMMA_LAYER_NAMES,
    "gemma4": GEMMA_LAYER_NAMES,
    "olmo2": OLMO_LAYER_NAMES,
    "phi3": PHI_LAYER_NAMES,
    "qwen3moe": QWEN_MOE_LAYER_NAMES,
    "lfm2": LFM_LAYER_NAMES,
    "lfm2moe": LFM_LAYER_NAMES,
}
QWEN_LINEAR = ("qwen3next", "qwen35", "qwen35moe")
PAIRED = ("llama", "smollm3", "mistral3", "granite", "granitemoe", "granitehybrid")  # rotation pairs are neighbours
TOP_NAMES = {"model.embedding_norm": "token_embd_norm", "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str, arch: str) -> str:
    stem, suffix = name.rsplit(".", 1)
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{suffix}"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{NAMES.get(arch, LAYER_NAMES)[inner]}.{suffix}"


def halves_to_pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorders the rows of each head: row i goes to 2i, row head_dim/2 + i to 2i + 1."""
    rows = weight.shape[0]
    half = rows // heads // 2
    order = np.empty(rows, dtype=np.int64)
    for head in range(heads):
        start = head * 2 * half
        for i in range(half):
            order[start + 2 * i] = start + i
            order[start + 2 * i + 1] = start + half + i
    return weight[order]


def llama3_divisors(head_dim: int, rope: dict) -> np.ndarray:
    """One divisor per rotation pair: 1 for short waves, `factor` for long ones, a blend between the two limits."""
    original = rope["original_max_position_embeddings"]
    long_wave = original / rope["low_freq_factor"]
    short_wave = original / rope["high_freq_factor"]
    divisors = []
    for i in range(head_dim // 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (2 * i / head_dim)
        if wave < short_wave:
            divisors.append(1.0)
        elif wave > long_wave:
            divisors.append(rope["factor"])
        else:
            share = (original / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
            divisors.append(1.0 / ((1.0 - share) / rope["factor"] + share))
    return np.array(divisors, dtype=np.float32)


def export(model, arch: str, name: str, path: str, four_bits: bool = False) -> None:
    """four_bits: experts as MXFP4, which their numbers must be."""
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if arch == "mamba2":
        gguf_mamba.add_mamba2(writer, config)
    elif arch in gguf_nemotron.ARCHITECTURES:
        gguf_nemotron.add_parameters(writer, config, arch)
    elif arch == "gemma4":
        gguf_gemma4.add_parameters(writer, config)
        gguf_gemma4.add_rotation(writer, config)
    else:
        _add_parameters(writer, config, arch)
    if (inner := _inner_width(model, arch)) is not None:
        writer.add_feed_forward_length(inner)
    _add_vocabulary(writer)

    rope = {"rope_type": "none"} if arch in ("mamba2", "gemma4", *gguf_nemotron.ARCHITECTURES) else _global_rope(config, arch)
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(head_dim_of(config), rope))
    elif rope["rope_type"] == "longrope":
        for kind in ("short", "long"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], dtype=np.float32))
    for key, tensor in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        data = tensor.detach().numpy().astype(np.float32)
        if arch in gguf_nemotron.ARCHITECTURES:
            gguf_nemotron.add_tensor(writer, key, data, config)
            continue
        if arch in gguf_mamba.ARCHITECTURES and gguf_mamba.add_tensor(writer, key, data, config):
            continue
        if arch == "gemma4" and gguf_gemma4.add_tensor(writer, key, data):
            continue
        if ".linear_attn." in key:
            _add_delta_net(writer, key, data, config, arch)
            continue
        if key.endswith(".kv_b_proj.weight"):
            _add_latent_up(writer, key, data, config)
            continue
        if key.endswith(".sinks"):
            writer.add_tensor(f"blk.{key.split('.')[2]}.attn_sinks.weight", data)
            continue
        if arch == "gpt-oss" and ".experts." in key:
            _add_gpt_oss_experts(writer, key, data, four_bits)
            continue
        if ".experts." in key or key.endswith((".expert_bias", ".e_score_correction_bias")):
            _add_experts(writer, key, data)
            continue
        if arch in PAIRED and ".q_proj." in key:
            data = halves_to_pairs(data, config.num_attention_heads)
        elif arch in PAIRED and ".k_proj." in key:
            data = halves_to_pairs(data, config.num_key_value_heads)
        elif (arch == "gemma3" or arch in QWEN_LINEAR) and "norm" in key:
            data = data + np.float32(1)
        elif ".conv.conv." in key:
            data = data.squeeze(1)
        writer.add_tensor(gguf_name(key, arch), np.ascontiguousarray(data))

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _inner_width(model, arch: str) -> int:
    if arch in gguf_mamba.ARCHITECTURES:
        return None if arch == "mamba2" else gguf_mamba.inner_width(model.config)
    if arch == "gemma4" or arch in gguf_nemotron.ARCHITECTURES:
        return None
    if arch == "lfm2":  # which adjusts what its config says
        return model.state_dict()["model.layers.0.feed_forward.w1.weight"].shape[0]
    return getattr(model.config, "intermediate_size", None)


def _add_latent_up(writer: gguf.GGUFWriter, key: str, data: np.ndarray, config) -> None:
    blk, heads = f"blk.{key.split('.')[2]}.", data.reshape(config.num_attention_heads, -1, data.shape[1])
    keys, values = heads[:, : config.qk_nope_head_dim], heads[:, config.qk_nope_head_dim :]
    writer.add_tensor(blk + "attn_k_b.weight", np.ascontiguousarray(keys.swapaxes(1, 2)))
    writer.add_tensor(blk + "attn_v_b.weight", np.ascontiguousarray(values))


def _add_latent_sizes(writer: gguf.GGUFWriter, config) -> None:
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    listed = getattr(config, "mlp_layer_types", None)
    writer.add_leading_dense_block_count(listed.count("dense") if listed else config.first_k_dense_replace)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)


def _add_gpt_oss_experts(writer: gguf.GGUFWriter, key: str, data: np.ndarray, four_bits: bool) -> None:
    blk, inner = f"blk.{key.split('.')[2]}.", key.split(".experts.")[1]
    suffix = ".bias" if inner.endswith("_bias") else ".weight"
    if suffix == ".weight":
        data = data.swapaxes(1, 2)
    parts = {"down": data} if inner.startswith("down") else {"gate": data[:, ::2], "up": data[:, 1::2]}
    for part, values in parts.items():
        name, values = f"{blk}ffn_{part}_exps{suffix}", np.ascontiguousarray(values)
        if four_bits and suffix == ".weight":
            writer.add_tensor(name, mxfp4.gguf_bytes(*mxfp4.quantise(values)), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        else:
            writer.add_tensor(name, values)


def _tiled(data: np.ndarray, axis: int, config, head: int) -> np.ndarray:
    """Value heads of `head` elements: grouped by key head before, key heads in turn behind."""
    keys = config.linear_num_key_heads
    split = data.shape[:axis] + (keys, config.linear_num_value_heads // keys, head) + data.shape[axis + 1 :]
    return data.reshape(split).swapaxes(axis, axis + 1).reshape(data.shape)


def tiled_states(parts: list[np.ndarray], config, arch: str) -> list[np.ndarray] | None:
    """What delta nets carry, in the order of heads that a GGUF file has; None where that is the folder's."""
    if arch not in ("qwen35", "qwen35moe") or config.linear_num_key_heads == config.linear_num_value_heads:
        return None
    keys, values = config.linear_num_key_heads * config.linear_key_head_dim, config.linear_value_head_dim
    carried = 2 * config.layer_types.count("linear_attention")
    tiled = parts[: len(parts) - carried]
    for conv, recurrent in zip(parts[-carried::2], parts[-carried + 1 :: 2]):
        tiled += [np.concatenate([conv[: 2 * keys], _tiled(conv[2 * keys :], 0, config, values)]), _tiled(recurrent, 0, config, 1)]
    return tiled


def _add_delta_net(writer: gguf.GGUFWriter, key: str, data: np.ndarray, config, arch: str) -> None:
    blk, inner = f"blk.{key.split('.')[2]}.", key.split(".linear_attn.")[1]
    keys, values = config.linear_num_key_heads * config.linear_key_head_dim, config.linear_value_head_dim
    if inner == "A_log":
        data = -np.exp(data.astype(np.float64)).astype(np.float32)
    if inner == "conv1d.weight":
        data = data.squeeze(1)
    if inner == "in_proj_qkvz.weight":
        group = config.linear_num_value_heads // config.linear_num_key_heads * values
        parts = np.split(data.reshape(config.linear_num_key_heads, -1, data.shape[1]),
                         np.cumsum([config.linear_key_head_dim, config.linear_key_head_dim, group]), axis=1)  # fmt: skip
        q, k, v, z = (part.reshape(-1, data.shape[1]) for part in parts)
        writer.add_tensor(blk + "attn_qkv.weight", np.ascontiguousarray(np.concatenate([q, k, v])))
        writer.add_tensor(blk + "attn_gate.weight", np.ascontiguousarray(z))
        return
    if arch != "qwen3next":
        if inner in ("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight"):
            data = _tiled(data, 0, config, 1)
        elif inner == "in_proj_z.weight":
            data = _tiled(data, 0, config, values)
        elif inner in ("in_proj_qkv.weight", "conv1d.weight"):
            data = np.concatenate([data[: 2 * keys], _tiled(data[2 * keys :], 0, config, values)])
        elif inner == "out_proj.weight":
            data = _tiled(data, 1, config, values)
    name = {"A_log": blk + "ssm_a", "dt_bias": blk + "ssm_dt.bias"}.get(inner) or gguf_name(key, arch)
    writer.add_tensor(name, np.ascontiguousarray(data))


def _add_experts(writer: gguf.GGUFWriter, key: str, data: np.ndarray) -> None:
    blk = f"blk.{key.split('.')[2]}."
    if key.endswith(("expert_bias", "e_score_correction_bias")):
        writer.add_tensor(blk + "exp_probs_b.bias", data)
    elif key.endswith("down_proj"):
        writer.add_tensor(blk + "ffn_down_exps.weight", np.ascontiguousarray(data))
    else:
        gate, up = np.split(data, 2, axis=1)
        writer.add_tensor(blk + "ffn_gate_exps.weight", np.ascontiguousarray(gate))
        writer.add_tensor(blk + "ffn_up_exps.weight", np.ascontiguousarray(up))


def head_dim_of(config) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _global_rope(config, arch: str) -> dict:
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def _add_parameters(writer: gguf.GGUFWriter, config, arch: str) -> None:
    head_dim = head_dim_of(config)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if arch.startswith("lfm2"):
        kinds = config.layer_types
        writer.add_head_count_kv([0 if kind == "conv" else config.num_key_value_heads for kind in kinds])
        writer.add_shortconv_l_cache(config.conv_L_cache)
    elif arch == "granitehybrid":
        writer.add_head_count_kv(gguf_mamba.head_counts(config))
    else:
        writer.add_head_count_kv(1 if arch == "deepseek2" else config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps if arch.startswith("lfm2") else config.rms_norm_eps)
    if arch.startswith("granite"):
        gguf_mamba.add_granite(writer, config, arch)
    if arch == "deepseek2":
        _add_latent_sizes(writer, config)
    elif head_dim * config.num_attention_heads != config.hidden_size or arch in ("gemma3", "qwen3", "qwen3moe", "gpt-oss", *QWEN_LINEAR):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch in ("llama", "smollm3", "mistral3"):
        writer.add_rope_dimension_count(head_dim)
        writer.add_vocab_size(config.vocab_size)
    if arch == "phi3" or arch in QWEN_LINEAR:
        writer.add_rope_dimension_count(int(head_dim * config.rope_parameters["partial_rotary_factor"]))
    if arch in ("gemma3", "olmo2", "phi3", "mistral3", "gpt-oss") and getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if arch == "olmo2" and getattr(config, "layer_types", None):
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if arch in QWEN_LINEAR:
        _add_delta_sizes(writer, config, arch)
    if arch in ("qwen3moe", "lfm2moe", "qwen3next", "qwen35moe", "gpt-oss", "deepseek2"):
        _add_routing(writer, config, arch)

    rope = _global_rope(config, arch)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if rope.get("attention_factor"):
            writer.add_rope_scaling_attn_factors(rope["attention_factor"])
        if rope.get("mscale_all_dim"):
            writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"] * (0.1 if arch == "deepseek2" else 1.0))
        if rope.get("beta_fast"):
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    elif rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        longer = max(1.0, config.max_position_embeddings / original)
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(rope.get("attention_factor") or math.sqrt(1 + math.log(longer) / math.log(original)))
    if rope.get("llama_4_scaling_beta"):
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def _add_delta_sizes(writer: gguf.GGUFWriter, config, arch: str) -> None:
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_num_value_heads * config.linear_value_head_dim)
    writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)
    if arch != "qwen3next":
        writer.add_rope_dimension_sections([1, 1, 0, 0])  # of three axes, which are one for text


def _add_routing(writer: gguf.GGUFWriter, config, arch: str) -> None:
    oss = arch == "gpt-oss"
    writer.add_expert_count(config.num_local_experts if oss or arch == "deepseek2" else config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.intermediate_size if oss else config.moe_intermediate_size)
    if arch in QWEN_LINEAR:
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if arch == "lfm2moe":
        writer.add_leading_dense_block_count(config.num_dense_layers)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    specials = len(toy_vocab.SPECIALS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(toy_vocab.TOKENS)
    writer.add_token_types([control] * specials + [normal] * (len(toy_vocab.TOKENS) - specials))
    writer.add_token_merges([f"{left} {right}" for left, right in toy_vocab.MERGES])
    writer.add_unk_token_id(toy_vocab.UNK)
    writer.add_bos_token_id(toy_vocab.BOS)
    writer.add_eos_token_id(toy_vocab.EOS)
    writer.add_pad_token_id(toy_vocab.PAD)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
