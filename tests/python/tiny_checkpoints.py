"""Small random checkpoints of every architecture, as Hugging Face folders: any seed, depth and element type.

    folder = write(tmp_path / "zaya", "zaya", seed=3, layers=12, dtype="I8")

They are for tests that need many models. Weights are scaled so that attention and routers decide clearly.
"""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens"
TOKENIZER = GOLDENS / "folders" / "llama-f32" / "tokenizer.json"
VOCABULARY, WIDTH = 64, 32

Weights = dict[str, np.ndarray]


def config_of(arch: str, layers: int, **more) -> dict:
    common = dict(
        model_type=arch, vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=40, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=512, rms_norm_eps=1e-6,
        hidden_act="silu", tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    if arch == "gemma3":
        kinds = ["full_attention" if i % 3 == 2 else "sliding_attention" for i in range(layers)]
        common |= dict(
            model_type="gemma3_text", hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=12, sliding_window=12,
            layer_types=kinds, num_key_value_heads=2, attn_logit_softcapping=None, final_logit_softcapping=None,
            rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                             "full_attention": {"rope_type": "linear", "rope_theta": 100000.0, "factor": 8.0}},
        )  # fmt: skip
    if arch == "gpt2":
        common = dict(
            model_type="gpt2", vocab_size=VOCABULARY, n_embd=WIDTH, n_head=4, n_inner=48, n_layer=layers, n_positions=512,
            activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=True, bos_token_id=1,
            eos_token_id=2,
        )  # fmt: skip
    if arch == "zaya":
        common |= dict(
            rms_norm_eps=1e-5, moe_intermediate_size=16, num_experts=more.pop("experts", 4), num_experts_per_tok=1,
            router_hidden_size=8, cca_time0=2, cca_time1=2, attention_bias=False, lm_head_bias=False,
            sliding_window=16, layer_types=["hybrid_sliding" if i % 3 == 1 else "hybrid" for i in range(layers)],
            rope_parameters={
                kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.5}
                for kind, theta in (("hybrid", 5e6), ("hybrid_sliding", 1e4))
            },
        )  # fmt: skip
        del common["intermediate_size"]
    return common | more


def shapes_of(config: dict) -> dict[str, tuple[int, ...]]:
    arch, width = config["model_type"], config.get("hidden_size", WIDTH)
    out: dict[str, tuple[int, ...]] = {}
    if arch == "gpt2":
        inner = config["n_inner"]
        out |= {"transformer.wte.weight": (VOCABULARY, width), "transformer.wpe.weight": (config["n_positions"], width)}
        for i in range(config["n_layer"]):
            for name, rows, columns in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                        ("mlp.c_fc", width, inner), ("mlp.c_proj", inner, width)):  # fmt: skip
                out[f"transformer.h.{i}.{name}.weight"], out[f"transformer.h.{i}.{name}.bias"] = (rows, columns), (columns,)
            for name in ("ln_1", "ln_2"):
                out[f"transformer.h.{i}.{name}.weight"] = out[f"transformer.h.{i}.{name}.bias"] = (width,)
        return out | {"transformer.ln_f.weight": (width,), "transformer.ln_f.bias": (width,)}
    heads, groups, dim = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    out |= {"model.embed_tokens.weight": (VOCABULARY, width), "model.norm.weight": (width,)}
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = (VOCABULARY, width)
    if arch == "zaya":
        out |= {"model.input_hidden_states_bias": (width,), "model.input_hidden_states_scale": (width,)}
    for i in range(config["num_hidden_layers"]):
        layer = _zaya_layer(config) if arch == "zaya" else _usual_layer(config)
        layer["self_attn.o_proj.weight"] = (width, heads * dim)
        out |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    return out


def _usual_layer(config: dict) -> dict[str, tuple[int, ...]]:
    arch, width, inner = config["model_type"], config["hidden_size"], config["intermediate_size"]
    heads, groups, dim = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    norms = ["input_layernorm", "post_attention_layernorm"]
    if arch == "gemma3_text":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    layer: dict[str, tuple[int, ...]] = {f"{name}.weight": (width,) for name in norms}
    for name, count in (("q", heads), ("k", groups), ("v", groups)):
        layer[f"self_attn.{name}_proj.weight"] = (count * dim, width)
        if arch == "qwen2":
            layer[f"self_attn.{name}_proj.bias"] = (count * dim,)
    if arch in ("qwen3", "gemma3_text"):
        layer |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
    layer |= {"mlp.gate_proj.weight": (inner, width), "mlp.up_proj.weight": (inner, width)}
    return layer | {"mlp.down_proj.weight": (width, inner)}


def _zaya_layer(config: dict) -> dict[str, tuple[int, ...]]:
    width, n, experts, inner = (config[key] for key in ("hidden_size", "router_hidden_size", "num_experts", "moe_intermediate_size"))
    heads, groups, dim = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    channels, half = (heads + groups) * dim, groups * dim // 2
    layer = {"input_layernorm.weight": (width,), "post_attention_layernorm.weight": (width,)}
    for place in ("post_attention", "post_mlp"):
        for part in ("hidden_states", "residual"):
            layer |= {f"{place}_residual_scale.{part}_{kind}": (width,) for kind in ("scale", "bias")}
    qkv = "self_attn.qkv_proj."
    layer |= {
        qkv + "q_proj.weight": (heads * dim, width), qkv + "k_proj.weight": (groups * dim, width),
        qkv + "v_proj_current.weight": (half, width), qkv + "v_proj_delayed.weight": (half, width),
        qkv + "conv_qk_depthwise.weight": (channels, 1, 2), qkv + "conv_qk_depthwise.bias": (channels,),
        qkv + "conv_qk_grouped.weight": (channels, dim, 2), qkv + "conv_qk_grouped.bias": (channels,),
        "self_attn.qk_norm.temp": (groups,),
        "mlp.experts.gate_up_proj": (experts, 2 * inner, width), "mlp.experts.down_proj": (experts, width, inner),
        "mlp.gate.balancing_biases": (experts + 1,), "mlp.gate.down_proj.weight": (n, width),
        "mlp.gate.down_proj.bias": (n,), "mlp.gate.router_mlp.norm.weight": (n,),
        "mlp.gate.router_mlp.fc1.weight": (n, n), "mlp.gate.router_mlp.fc1.bias": (n,),
        "mlp.gate.router_mlp.fc2.weight": (n, n), "mlp.gate.router_mlp.fc2.bias": (n,),
        "mlp.gate.router_mlp.out_proj.weight": (experts + 1, n),
    }  # fmt: skip
    return layer


def weights_of(config: dict, seed: int) -> Weights:
    stream = np.random.default_rng(seed)
    out = {}
    for name, shape in shapes_of(config).items():
        out[name] = _scaled(name, stream.standard_normal(shape), config["model_type"]).astype(np.float32)
    if config["model_type"] == "zaya":
        n = config["router_hidden_size"]
        for i in range(1, config["num_hidden_layers"]):
            out[f"model.layers.{i}.mlp.gate.router_states_scale"] = (1 + 0.3 * stream.standard_normal(n)).astype(np.float32)
    return out


def _scaled(name: str, noise: np.ndarray, arch: str) -> np.ndarray:
    if "norm" in name and name.endswith("weight") or ".ln_" in name and name.endswith("weight") or name.endswith("_scale"):
        return (0.0 if arch == "gemma3_text" else 1.0) + 0.3 * noise
    if name.endswith("temp"):
        return 1.0 + 0.3 * noise
    if name.endswith("biases"):
        return 0.2 * noise
    if name.endswith("bias"):
        return (0.05 if "gate" in name else 0.3) * noise
    if "embed" in name or ".wte" in name or ".wpe" in name:
        return 0.4 * noise
    if arch == "gpt2":
        return noise / np.sqrt(noise.shape[0])
    if "router_mlp.out_proj" in name or "router_mlp.fc2" in name:
        noise = noise - noise.mean(axis=-1, keepdims=True)
    inputs = np.prod(noise.shape[1:]) if "conv" in name else noise.shape[-1]
    gain = 4.0 if "router_mlp" in name else 1.5 if "q_proj" in name or "k_proj" in name else 1.0
    return gain * noise / np.sqrt(inputs)


def _stored(name: str, array: np.ndarray, dtype: str) -> dict[str, tuple[str, np.ndarray]]:
    if dtype == "F16":
        return {name: ("F16", array.astype(np.float16))}
    matrix = array.ndim >= 2 and not any(part in name for part in ("conv", "embed", "router_mlp.fc"))
    if dtype == "I8" and matrix:
        scale = np.maximum(np.abs(array).max(axis=-1, keepdims=True), 1e-12) / 127.0
        rounded = np.rint(array / scale).astype(np.int8)
        return {name: ("I8", rounded), name + "_scale": ("F32", scale.astype(np.float32))}
    return {name: ("F32", array.astype(np.float32))}


def save(folder: pathlib.Path, config: dict, weights: Weights, dtype: str = "F32") -> pathlib.Path:
    folder.mkdir(parents=True)
    header, data, at = {}, [], 0
    for name, array in weights.items():
        for key, (kind, stored) in _stored(name, array, dtype).items():
            raw = np.ascontiguousarray(stored).tobytes()
            header[key] = {"dtype": kind, "shape": list(stored.shape), "data_offsets": [at, at + len(raw)]}
            data.append(raw)
            at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    return folder


def write(folder: pathlib.Path, arch: str, seed: int, layers: int = 2, dtype: str = "F32", **more) -> pathlib.Path:
    config = config_of(arch, layers, **more)
    return save(folder, config, weights_of(config, seed), dtype)
