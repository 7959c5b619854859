"""Builds the tiny random models whose logits are the goldens of tests/goldens/models.

    python tools/references/tiny_models.py [--out tests/goldens/models]

Each case is a config class of `transformers` with random weights; the model reads one shared text and its logits at
every position are stored beside the exported GGUF file. Weights come from NumPy's frozen legacy generator, one stream
per model, so that another machine builds the same files.
"""

import argparse
import json
import pathlib
from dataclasses import dataclass, field
from importlib.metadata import version

import numpy as np
import torch
import transformers

import gguf_export
import toy_vocab
from in_double import in_double

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "models"


@dataclass(frozen=True)
class Case:
    name: str
    arch: str  # general.architecture of the GGUF file
    family: str  # prefix of the classes in transformers
    seed: int
    shows: str
    config: dict = field(default_factory=dict)


COMMON = dict(
    vocab_size=len(toy_vocab.TOKENS),
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=2,
    max_position_embeddings=256,
    tie_word_embeddings=True,
    bos_token_id=toy_vocab.BOS,
    eos_token_id=toy_vocab.EOS,
    pad_token_id=None,
)


GPT2_COMMON = ("vocab_size", "tie_word_embeddings", "bos_token_id", "eos_token_id")


def rope(kind: str = "default", theta: float = 10000.0, **more) -> dict:
    return {"rope_type": kind, "rope_theta": theta, **more}


CASES = [
    Case("llama-mha-untied", "llama", "Llama", 101, "one query head per KV head, its own output matrix",
         dict(num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5, tie_word_embeddings=False,
              rope_parameters=rope())),
    Case("llama-rope-llama3", "llama", "Llama", 102, "llama3 rope scaling: a kept, a blended and two stretched waves",
         dict(num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
              rope_parameters=rope("llama3", 500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=64))),
    Case("llama-rope-linear", "llama", "Llama", 103, "linear rope scaling, four query heads per KV head",
         dict(num_attention_heads=4, num_key_value_heads=1, num_hidden_layers=1, rms_norm_eps=1e-6,
              rope_parameters=rope("linear", factor=4.0))),
    Case("llama-rope-yarn", "llama", "Llama", 104, "yarn rope scaling: ramp and magnitude",
         dict(num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=1, rms_norm_eps=1e-6,
              rope_parameters=rope("yarn", 1000.0, factor=4.0, original_max_position_embeddings=64))),
    Case("mistral-wide-heads", "llama", "Mistral", 105, "heads wider than hidden / heads, its own output matrix",
         dict(num_attention_heads=4, num_key_value_heads=1, num_hidden_layers=1, head_dim=16, rms_norm_eps=1e-5,
              tie_word_embeddings=False, sliding_window=None, rope_parameters=rope(theta=1000000.0))),
    Case("qwen2-biases", "qwen2", "Qwen2", 106, "biases on query, key and value; rotation by halves",
         dict(num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=rope(theta=1000000.0))),
    Case("qwen3-head-norms", "qwen3", "Qwen3", 107, "norms of queries and keys, explicit head width",
         dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_hidden_layers=1, rms_norm_eps=1e-6,
              rope_parameters=rope(theta=1000000.0))),
    Case("gemma3-window", "gemma3", "Gemma3", 108, "window of 16 in a text of 80; local, global and local layers",
         dict(num_attention_heads=4, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, num_hidden_layers=7,
              intermediate_size=24, rms_norm_eps=1e-6, sliding_window=16,
              rope_parameters=dict(sliding_attention=rope(), full_attention=rope(theta=1000000.0)))),
    Case("gemma3-rope-linear", "gemma3", "Gemma3", 109, "linear rope scaling of global layers only; odd window of 11",
         dict(num_attention_heads=2, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, num_hidden_layers=6,
              rms_norm_eps=1e-6, sliding_window=11,
              rope_parameters=dict(sliding_attention=rope(),
                                   full_attention=rope("linear", theta=1000000.0, factor=8.0)))),
]  # fmt: skip


ADDS_ONE = ("gemma3", "qwen3next", "qwen35", "qwen35moe")  # whose norms add the 1 to their weights themselves


def build(case: Case):
    """The model in float32 with plain (eager) attention and every parameter random: no norm is 1, no bias is 0."""
    prefix = case.family + ("Text" if case.family in ("Gemma3", "Gemma4", "Qwen3_5", "Qwen3_5Moe") else "")
    left_out = {"intermediate_size"} if case.arch in ("zaya", "qwen35moe", "mamba2") else set()
    common = {k: v for k, v in COMMON.items() if k not in left_out and (case.arch != "gpt2" or k in GPT2_COMMON)}
    config = getattr(transformers, prefix + "Config")(**common | case.config)
    config._attn_implementation = "eager"
    model_class = "GPT2LMHeadModel" if case.arch == "gpt2" else case.family + "ForCausalLM"
    model = getattr(transformers, model_class)(config).to(torch.float32).eval()
    stream = np.random.RandomState(case.seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = stream.standard_normal(tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(_scaled(name, noise, case.arch).astype(np.float32)))
        for name, buffer in sorted(model.named_buffers()):
            if name.endswith("layer_scalar"):
                buffer.copy_(torch.from_numpy((0.8 + 0.1 * stream.standard_normal(tuple(buffer.shape))).astype(np.float32)))
            if name.endswith(("balancing_biases", "expert_bias", "e_score_correction_bias")):  # they change a choice sometimes
                buffer.copy_(torch.from_numpy(0.2 * stream.standard_normal(tuple(buffer.shape)).astype(np.float32)))
    return model


def _scaled(name: str, noise: np.ndarray, arch: str) -> np.ndarray:
    if arch == "gpt2":
        return _scaled_gpt2(name, noise)
    if arch == "zaya":
        return _scaled_zaya(name, noise)
    if arch == "gemma4" and name.endswith(("q_norm.weight", "k_norm.weight")):
        return 0.5 + 0.15 * noise  # scores are not scaled: sharper ones would make float32 itself differ by 4e-4
    if "norm" in name:
        centre = 0.0 if arch in ADDS_ONE and "linear_attn" not in name else 1.0
        return centre + 0.3 * noise
    if name.endswith("bias"):
        return (0.3 if ".mlp." in name else 0.5) * noise
    if name.endswith("sinks"):
        return 1.5 * noise
    if name.endswith((".D", "router.scale", "per_expert_scale")):
        return 1.0 + 0.3 * noise
    if name.endswith("A_log"):
        return 0.7 * noise - 1.0  # a matrix forgets within ten tokens or a hundred
    if "embed_tokens" in name or "embeddings" in name:
        return 0.4 * noise
    # Queries and keys are made large enough for attention to prefer some positions clearly over others.
    gain = 1.5 if "q_proj" in name or "k_proj" in name else 1.0
    # A router decides clearly; stacked experts and matrices add up their last extent, a convolution all but its first.
    routers = ("mlp.gate.weight", "feed_forward.gate.weight", "mlp.router.weight", "block_sparse_moe.router.weight", "router.proj.weight", "mixer.gate.weight")
    gain = 4.0 if name.endswith(routers) else gain
    if arch == "gpt-oss" and ".experts." in name:  # inputs before outputs
        return 3.0 * noise / np.sqrt(noise.shape[1])  # large enough to be clamped sometimes
    gain = 1.5 if name.endswith("conv1d.weight") else gain
    gain = 0.5 if name.endswith("per_layer_input_gate.weight") else gain  # of the stream without a norm
    return gain * noise / np.sqrt(noise.shape[-1])


def _scaled_gpt2(name: str, noise: np.ndarray) -> np.ndarray:
    if ".ln_" in name:
        return (1.0 if name.endswith("weight") else 0.0) + 0.3 * noise
    if name.endswith("bias"):
        return 0.3 * noise
    if "wte" in name or "wpe" in name:
        return 0.4 * noise
    return noise / np.sqrt(noise.shape[0])  # Conv1D: inputs times outputs


def _scaled_zaya(name: str, noise: np.ndarray) -> np.ndarray:
    if "norm" in name or name.endswith("_scale"):
        return 1.0 + 0.3 * noise
    if name.endswith("bias"):
        return (0.05 if "gate" in name else 0.3) * noise  # tokens, not biases, are to decide where they go
    if "embed_tokens" in name:
        return 0.4 * noise
    # What gelu lets through is positive on average: without this all tokens would choose one expert.
    if "router_mlp.out_proj" in name or "router_mlp.fc2" in name:
        noise = noise - noise.mean(axis=-1, keepdims=True)
    # Convolutions add up all but their first extent; stacked experts and matrices the last. The router decides clearly.
    inputs = np.prod(noise.shape[1:]) if "conv" in name else noise.shape[-1]
    gain = 4.0 if "router_mlp" in name else 1.0
    return gain * noise / np.sqrt(inputs)


def logits_of(model, ids: list[int]) -> np.ndarray:
    """[len(ids)][vocabulary], computed in float64: sums in float32 differ by 4e-5 from processor to processor."""
    with torch.no_grad(), in_double(model):
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy().astype(np.float32)


def build_all(out: pathlib.Path) -> dict:
    """Writes every model, its logits, the text, the ids and manifest.json; returns the manifest."""
    out.mkdir(parents=True, exist_ok=True)
    text, ids = toy_vocab.text_and_ids()
    (out / "tiny.txt").write_text(text, encoding="utf-8")
    np.save(out / "tiny.ids.npy", np.array(ids, dtype=np.int32))
    entries = []
    for case in CASES:
        model = build(case)
        gguf_export.export(model, case.arch, case.name, str(out / f"{case.name}.gguf"))
        logits = logits_of(model, ids)
        np.save(out / f"{case.name}.logits.npy", logits)
        entries.append({
            "name": case.name,
            "model": f"{case.name}.gguf",
            "logits": f"{case.name}.logits.npy",
            "architecture": case.arch,
            "shows": case.shows,
            "seed": case.seed,
            "config_class": type(model.config).__name__,
            "config": COMMON | case.config,
            "logit_min": float(logits.min()),
            "logit_max": float(logits.max()),
        })  # fmt: skip
    manifest = {
        "versions": {p: version(p) for p in ("torch", "transformers", "gguf", "numpy", "tokenizers")},
        "text": "tiny.txt",
        "ids": "tiny.ids.npy",
        "dtype": "float32",
        "shape": "[position][vocabulary]",
        "models": entries,
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=GOLDENS)
    out = parser.parse_args().out
    for entry in build_all(out)["models"]:
        size = (out / entry["model"]).stat().st_size + (out / entry["logits"]).stat().st_size
        print(f"{entry['name']:22} {size / 1000:6.1f} kB   logits {entry['logit_min']:.2f} .. {entry['logit_max']:.2f}")


if __name__ == "__main__":
    main()
