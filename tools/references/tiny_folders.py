"""Builds the tiny random checkpoints in the layout of Hugging Face: the goldens of tests/goldens/folders.

    python tools/references/tiny_folders.py [--out tests/goldens/folders]

Each case is a config class of `transformers` with random weights, saved by the package itself (config.json,
model.safetensors or shards), with the tokenizer that every tiny model carries and the logits of the package at every
position of the text that they all read. Files end as small as they are because the models are.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
from importlib.metadata import version

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import gguf_export
import mxfp4
import toy_vocab
from tiny_models import COMMON, Case, build, logits_of, rope

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "folders"


@dataclasses.dataclass(frozen=True)
class Folder:
    case: Case
    dtype: str = "F32"  # F32, F16, BF16, or I8: matrices of the layers as integers with scales
    shards: int = 1
    four_bits: bool = False  # published, with experts in MXFP4
    published: bool = False  # saved by the package, under the names that checkpoints are published with; F32. And as GGUF.


SMALL = dict(num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2)

LFM = dict(num_attention_heads=4, num_key_value_heads=2, norm_eps=1e-5, layer_types=["conv", "full_attention", "conv"])

DELTA = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, num_hidden_layers=4,
             linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=12, linear_value_head_dim=20,
             full_attention_interval=2, rope_parameters=rope(theta=1000.0, partial_rotary_factor=0.25))  # fmt: skip
SHARED = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12)

OSS = dict(SMALL, head_dim=16, rms_norm_eps=1e-5, sliding_window=16, tie_word_embeddings=False, num_local_experts=5, num_experts_per_tok=2,
           rope_parameters=rope("yarn", 1000.0, factor=4.0, original_max_position_embeddings=32, truncate=False))  # fmt: skip

LATENT = dict(num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=3, kv_lora_rank=20, q_lora_rank=24, qk_nope_head_dim=12,
              qk_rope_head_dim=6, v_head_dim=10, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=8, n_shared_experts=1,
              n_group=4, topk_group=2, first_k_dense_replace=1)  # fmt: skip

GRANITE = dict(num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3, rms_norm_eps=1e-5, attention_multiplier=0.3, embedding_multiplier=3.0,
               residual_multiplier=0.6, logits_scaling=2.5, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=12, mamba_n_groups=2, num_local_experts=5,
               num_experts_per_tok=2, intermediate_size=8, shared_intermediate_size=12, layer_types=["linear_attention", "full_attention", "linear_attention"])  # fmt: skip

# No limit of steps: transformers holds them at time_step_min and above where a text is read at once, only there.
NEMOTRON = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12, mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=12, n_groups=2,
                time_step_min=1e-30, tie_word_embeddings=False, n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
                moe_shared_expert_intermediate_size=20, layers_block_type=["linear_attention", "moe", "full_attention", "moe"])  # fmt: skip

GEMMA4 = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8, global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True,
              rms_norm_eps=1e-6, num_hidden_layers=5, sliding_window=16, num_kv_shared_layers=2, use_double_wide_mlp=True, intermediate_size=16,
              layer_types=["sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention"],
              hidden_size_per_layer_input=6, vocab_size_per_layer_input=COMMON["vocab_size"], final_logit_softcapping=8.0,
              enable_moe_block=True, num_experts=3, top_k_experts=2, moe_intermediate_size=8,
              rope_parameters=dict(sliding_attention=rope(theta=1000.0),
                                   full_attention=rope("proportional", 5000.0, partial_rotary_factor=0.25)))  # fmt: skip

ZAYA = dict(num_hidden_layers=2, num_attention_heads=4, head_dim=8, moe_intermediate_size=16, router_hidden_size=8)

FOLDERS = [
    Folder(Case("llama-f32", "llama", "Llama", 201, "llama3 rope scaling; halves rotate together in folders",
                dict(SMALL, rms_norm_eps=1e-5,
                     rope_parameters=rope("llama3", 500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                          original_max_position_embeddings=64)))),
    Folder(Case("mistral-f16-shards", "llama", "Mistral", 202, "float16 in three shards, window of 16, its own head",
                dict(SMALL, rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=16,
                     rope_parameters=rope(theta=1000000.0))), "F16", 3),
    Folder(Case("qwen2-bf16", "qwen2", "Qwen2", 203, "bfloat16; biases; a window from the second layer on",
                dict(SMALL, rms_norm_eps=1e-6, use_sliding_window=True, sliding_window=11, max_window_layers=1,
                     rope_parameters=rope(theta=1000000.0))), "BF16"),
    Folder(Case("qwen3-i8", "qwen3", "Qwen3", 204, "8-bit integers with scales per output and per tensor",
                dict(SMALL, head_dim=16, rms_norm_eps=1e-6, rope_parameters=rope(theta=1000000.0))), "I8"),
    Folder(Case("gemma3-f32", "gemma3", "Gemma3", 205, "norms without their 1, windows by layer_types, two rotations",
                dict(num_attention_heads=4, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=10,
                     num_hidden_layers=3, intermediate_size=24, rms_norm_eps=1e-6, sliding_window=16,
                     layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                     rope_parameters=dict(sliding_attention=rope(theta=5000.0),
                                          full_attention=rope("linear", theta=1000000.0, factor=8.0))))),
    Folder(Case("gpt2-f32", "gpt2", "GPT2", 206, "learned positions, layer norms with biases, gelu_new, Conv1D, tied head",
                dict(n_embd=32, n_layer=2, n_head=4, n_positions=256, n_inner=48, layer_norm_epsilon=1e-5))),
    # Longer than half floats count: a position kept as one is wrong from 2,049 on.
    Folder(Case("gpt2-long-f16", "gpt2", "GPT2", 207, "more than 2,048 positions, float16",
                dict(n_embd=16, n_layer=1, n_head=2, n_positions=2304, n_inner=None)), "F16"),
    Folder(Case("zaya-f16", "zaya", "Zaya", 208, "convolved attention, four experts, a window of 16 in the second block",
                dict(ZAYA, num_key_value_heads=2, num_experts=4, sliding_window=16,
                     layer_types=["hybrid", "hybrid_sliding"])), "F16"),
    Folder(Case("zaya-i8", "zaya", "Zaya", 209, "one KV head, seven experts, 8-bit integers with scales per output",
                dict(ZAYA, num_key_value_heads=1, num_experts=7)), "I8"),
    Folder(Case("smollm3-f32", "smollm3", "SmolLM3", 210, "the last of four layers rotates nothing; and as a GGUF file",
                dict(SMALL, rms_norm_eps=1e-6, num_hidden_layers=4)), published=True),
    Folder(Case("ministral3-f32", "mistral3", "Ministral3", 211, "yarn without magnitude, queries that grow; and as a GGUF file",
                dict(SMALL, head_dim=12, rms_norm_eps=1e-5,
                     rope_parameters=rope("yarn", 1000.0, factor=4.0, original_max_position_embeddings=32, mscale=1.0,
                                          mscale_all_dim=1.0, beta_fast=16.0, beta_slow=1.0, llama_4_scaling_beta=0.1))),
           published=True),
    Folder(Case("phi3-f32", "phi3", "Phi3", 212, "fused matrices, three quarters of a head rotate; and as a GGUF file",
                dict(SMALL, rms_norm_eps=1e-5, rope_parameters=rope(partial_rotary_factor=0.75))), published=True),
    Folder(Case("olmo3-f32", "olmo2", "Olmo3", 213, "norms behind, heads normed together, windows; and as a GGUF file",
                dict(SMALL, rms_norm_eps=1e-6, sliding_window=16, layer_types=["sliding_attention", "full_attention"],
                     rope_parameters=dict(sliding_attention=rope(theta=5000.0),
                                          full_attention=rope("yarn", 5000.0, factor=4.0, attention_factor=1.25,
                                                              original_max_position_embeddings=32)))), published=True),
    Folder(Case("qwen3-moe-f32", "qwen3moe", "Qwen3Moe", 214, "two of five experts for a token; and as a GGUF file",
                dict(SMALL, head_dim=8, rms_norm_eps=1e-6, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=8,
                     norm_topk_prob=True)), published=True),
    Folder(Case("lfm2-f32", "lfm2", "Lfm2", 215, "short convolutions around a layer of attention; and as a GGUF file",
                dict(LFM, num_hidden_layers=3, block_auto_adjust_ff_dim=False, intermediate_size=40)), published=True),
    Folder(Case("lfm2-moe-f32", "lfm2moe", "Lfm2Moe", 216, "two of five experts behind a dense layer; and as a GGUF file",
                dict(LFM, num_hidden_layers=3, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=8,
                     num_dense_layers=1)), published=True),
    Folder(Case("qwen3-5-f32", "qwen35", "Qwen3_5", 217, "gated delta nets and gated attention in turn; and as a GGUF file",
                DELTA), published=True),
    Folder(Case("qwen3-5-moe-f32", "qwen35moe", "Qwen3_5Moe", 218, "an expert for every token beside two of five; and as a GGUF file",
                dict(DELTA, **SHARED)), published=True),
    Folder(Case("qwen3-next-f32", "qwen3next", "Qwen3Next", 219, "projections in one tensor, two value heads per key head; and as a GGUF file",
                dict(DELTA, **SHARED, linear_num_value_heads=4, linear_value_head_dim=8, num_hidden_layers=2)), published=True),
    Folder(Case("gpt-oss-f32", "gpt-oss", "GptOss", 220, "learned sinks, windows, biases, a clamped gate; and as a GGUF file", OSS),
           published=True),
    Folder(Case("gpt-oss-mxfp4", "gpt-oss", "GptOss", 221, "experts as MXFP4; and as a GGUF file", OSS), published=True, four_bits=True),
    Folder(Case("deepseek-f32", "deepseek2", "DeepseekV3", 222, "latents, experts in groups, one for every token; and as a GGUF file",
                LATENT), published=True),
    Folder(Case("mamba2-f32", "mamba2", "Mamba2", 223, "one recurrence a layer and nothing else; and as a GGUF file",
                dict(num_heads=4, head_dim=16, state_size=12, n_groups=2, num_hidden_layers=2)), published=True),
    Folder(Case("granite-hybrid-f32", "granitehybrid", "GraniteMoeHybrid", 224, "Mamba-2 around a layer of attention, scaled sums; and as a GGUF file",
                GRANITE), published=True),
    Folder(Case("nemotron-h-f32", "nemotron_h_moe", "NemotronH", 226, "a layer is Mamba-2, attention or experts without gates; and as a GGUF file",
                NEMOTRON), published=True),
    Folder(Case("gemma4-f32", "gemma4", "Gemma4", 225, "shared rows, keys as values, two sizes of heads, numbers for every layer, experts; and as a GGUF file",
                GEMMA4), published=True),
]  # fmt: skip

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def round_weights(model, dtype: str) -> dict[str, torch.Tensor]:
    """Rounds the weights of the model to what will be stored; returns the tensors to store."""
    stored = {}
    state = model.state_dict()
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    for index, (name, tensor) in enumerate(state.items()):
        if name in tied:
            continue
        if dtype != "I8":
            stored[name] = tensor.to(TYPES[dtype]).contiguous()
            tensor.copy_(stored[name].to(torch.float32))
        elif "_proj.weight" in name or ".experts." in name:
            per_row = index % 2 == 0 or ".experts." in name
            largest = tensor.abs().amax(dim=-1, keepdim=True) if per_row else tensor.abs().max().reshape(1)
            scale = largest / 127
            stored[name] = torch.round(tensor / scale).clamp(-127, 127).to(torch.int8)
            stored[name + "_scale"] = scale
            tensor.copy_(stored[name].to(torch.float32) * scale)
        else:
            stored[name] = tensor.contiguous()
    return stored


def write_weights(stored: dict[str, torch.Tensor], folder: pathlib.Path, shards: int) -> None:
    if shards == 1:
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names, places = sorted(stored), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: stored[name] for name in names[shard::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        places |= {name: file for name in part}
    total = sum(tensor.numel() * tensor.element_size() for tensor in stored.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def write_tokenizer(folder: pathlib.Path) -> None:
    tokenizer = toy_vocab.tokenizer()
    tokenizer.add_special_tokens(toy_vocab.SPECIALS)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)


def save_published(model, folder: pathlib.Path) -> None:
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def build_folder(folder: Folder, out: pathlib.Path, ids: list[int]) -> dict:
    target = out / folder.case.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    model = build(folder.case)
    if folder.four_bits:
        mxfp4.round_experts(model)
    if folder.published:
        save_published(model, target)
        if folder.four_bits:
            mxfp4.pack_folder(target)
        gguf_export.export(model, folder.case.arch, folder.case.name, str(target / "model.gguf"), folder.four_bits)
    else:
        with torch.no_grad():
            stored = round_weights(model, folder.dtype)
        model.config.save_pretrained(target)
        write_weights(stored, target, folder.shards)
    write_tokenizer(target)
    logits = logits_of(model, ids)
    np.save(target / "logits.npy", logits)
    return {
        "name": folder.case.name,
        "shows": folder.case.shows,
        "seed": folder.case.seed,
        "dtype": folder.dtype,
        "config_class": type(model.config).__name__,
        "logit_min": float(logits.min()),
        "logit_max": float(logits.max()),
    }


def build_all(out: pathlib.Path) -> dict:
    out.mkdir(parents=True, exist_ok=True)
    _, ids = toy_vocab.text_and_ids()
    entries = [build_folder(folder, out, ids) for folder in FOLDERS]
    packages = ("torch", "transformers", "safetensors", "tokenizers", "numpy")
    manifest = {"versions": {p: version(p) for p in packages}, "models": entries}
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=GOLDENS)
    out = parser.parse_args().out
    for entry in build_all(out)["models"]:
        size = sum(file.stat().st_size for file in (out / entry["name"]).iterdir())
        print(f"{entry['name']:22} {size / 1000:6.1f} kB   logits {entry['logit_min']:.2f} .. {entry['logit_max']:.2f}")


if __name__ == "__main__":
    main()
