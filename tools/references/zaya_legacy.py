"""Today's names of ZAYA1's tensors and keys of its config into those of the older layout, which counts halves of blocks."""

import re

import torch

PLAIN = {
    "model.norm.weight": "model.final_norm.weight",
    "model.input_hidden_states_scale": "model.layers.0.res_scale.hidden_states_scale",
    "model.input_hidden_states_bias": "model.layers.0.res_scale.hidden_states_bias",
}
ATTENTION = {
    "input_layernorm": "input_norm",
    "self_attn.qkv_proj.q_proj": "self_attn.qkv.linear_q",
    "self_attn.qkv_proj.k_proj": "self_attn.qkv.linear_k",
    "self_attn.qkv_proj.v_proj_current": "self_attn.qkv.val_proj1",
    "self_attn.qkv_proj.v_proj_delayed": "self_attn.qkv.val_proj2",
    "self_attn.qkv_proj.conv_qk_depthwise": "self_attn.qkv.conv_qk.0",
    "self_attn.qkv_proj.conv_qk_grouped": "self_attn.qkv.conv_qk.1",
    "self_attn.qk_norm.temp": "self_attn.qkv.temp",
    "self_attn.o_proj": "self_attn.o_proj",
}
EXPERTS = {
    "post_attention_layernorm": "input_norm",
    "post_attention_residual_scale": "res_scale",
    "mlp.gate.down_proj": "zaya_block.router.down_proj",
    "mlp.gate.router_states_scale": "zaya_block.router.router_states_scale",
    "mlp.gate.router_mlp.norm": "zaya_block.router.rmsnorm_eda",
    "mlp.gate.router_mlp.fc1": "zaya_block.router.router_mlp.0",
    "mlp.gate.router_mlp.fc2": "zaya_block.router.router_mlp.2",
    "mlp.gate.router_mlp.out_proj": "zaya_block.router.router_mlp.4",
    "mlp.gate.balancing_biases": "zaya_block.router.balancing_biases",
}
STACKED = {"mlp.experts.gate_up_proj": "linear_fc1", "mlp.experts.down_proj": "linear_fc2"}


def tensors(stored: dict[str, torch.Tensor], blocks: int) -> dict[str, torch.Tensor]:
    out = {}
    for name, tensor in stored.items():
        block = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
        if block is None:
            out[PLAIN.get(name, name)] = tensor
            continue
        b, rest = int(block[1]), block[2]
        if rest in STACKED:
            for e in range(tensor.shape[0]):
                out[f"model.layers.{2 * b + 1}.zaya_block.experts.local_experts.{e}.{STACKED[rest]}.weight"] = tensor[e].clone()
        elif rest.startswith("post_mlp_residual_scale."):
            half = "model" if b + 1 == blocks else f"model.layers.{2 * b + 2}"
            out[rest.replace("post_mlp_residual_scale", half + ".res_scale")] = tensor
        else:
            table, offset = next((t, o) for t, o in ((ATTENTION, 0), (EXPERTS, 1)) if any(rest.startswith(k) for k in t))
            old = max((k for k in table if rest.startswith(k)), key=len)
            out[f"model.layers.{2 * b + offset}.{rest.replace(old, table[old], 1)}"] = tensor
    return out


def config(new: dict) -> dict:
    rope = new["rope_parameters"]["hybrid"]
    return {
        "model_type": "zaya", "cca": True, "num_hidden_layers": 2 * new["num_hidden_layers"],
        "hidden_size": new["hidden_size"], "num_attention_heads": new["num_attention_heads"],
        "num_key_value_heads": new["num_key_value_heads"], "num_query_groups": new["num_key_value_heads"],
        "head_dim": new["head_dim"], "kv_channels": new["head_dim"], "ffn_hidden_size": 2 * new["moe_intermediate_size"],
        "num_experts": new["num_experts"], "moe_router_topk": 1, "zaya_mlp_expansion": new["router_hidden_size"],
        "zaya_use_eda": True, "zaya_use_mod": True, "zaya_high_prec": True, "norm_epsilon": new["rms_norm_eps"],
        "partial_rotary_factor": rope["partial_rotary_factor"], "rope_theta": rope["rope_theta"], "rope_scaling": False,
        "scale_residual_merge": True, "residual_in_fp32": True, "clamp_temp": False, "sliding_window": None,
        "attention_bias": False, "lm_head_bias": False, "add_bias_linear": False, "tie_word_embeddings": True,
        "max_position_embeddings": new["max_position_embeddings"], "vocab_size": new["vocab_size"],
    }  # fmt: skip
