#!/usr/bin/env python3
"""Writes a model with random weights in the shape of one that people run, as a GGUF file: for speed and memory, not for text.

    make bench-shapes [SHAPES="lfm2-1.2b:q4_k_m:16 qwen3.5-0.8b:q4_k_m:24 granite-4-h-1b:q4_k_m:40"]
    tools/random_model.py DONOR.gguf OUT.gguf --shape NAME [--types q4_k_m|q8_0|q4_0] [--layers N]

The vocabulary is the donor's. Numbers have the spread that trained weights have, so that activations stay finite. A block
of random weights is written again and again: what is measured depends on types and shapes, not on values. Needs gguf.
"""
import argparse
from dataclasses import dataclass

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type


@dataclass(frozen=True)
class Shape:
    arch: str
    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    own_head: bool  # an output matrix beside the embedding
    attention: tuple[int, ...] | None = None  # the layers that have it; None: all


SHAPES = {
    "llama1b": Shape("llama", 2048, 8192, 16, 32, 8, 64, False),
    "mistral7b": Shape("llama", 4096, 14336, 32, 32, 8, 128, True),
    "qwen3-0.6b": Shape("qwen3", 1024, 3072, 28, 16, 8, 128, False),
    "lfm2-1.2b": Shape("lfm2", 2048, 8192, 16, 32, 8, 64, False, (2, 5, 8, 10, 12, 14)),
    "qwen3.5-0.8b": Shape("qwen35", 1024, 3584, 24, 8, 2, 256, False, tuple(range(3, 24, 4))),
    "granite-4-h-1b": Shape("granitehybrid", 1536, 4096, 40, 12, 4, 128, False, (5, 15, 25, 35)),
}
# Where a block has its half-precision steps, and what an element of it spreads when the step is one.
STEPS = {Type.Q8_0: ((0, 1.0),), Type.Q4_0: ((0, 1.0),), Type.Q4_K: ((0, 1.0), (2, 7.5)), Type.Q6_K: ((208, 1.0),)}
SPREAD = {Type.Q8_0: 74.0, Type.Q4_0: 4.6, Type.Q4_K: 32 * 4.6, Type.Q6_K: 16 * 18.5}
REPEATED = 1 << 14  # blocks
TAPS = 3  # of LFM2's convolutions
SPACE_HEADS, SPACE_DIM, SPACE_STATE, SPACE_TAPS = 48, 64, 128, 4  # of the recurrences of Granite 4 H 1B, one group
NET_HEADS, NET_DIM, NET_TAPS = 16, 128, 4  # of the delta nets of Qwen3.5-0.8B: heads of keys and of values, their size


def random_blocks(rng, rows, columns, dtype):
    """[rows][bytes of a row]: weights of about 1 / sqrt(columns)."""
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[dtype]
    count = rows * columns // per_block
    blocks = rng.integers(0, 256, (min(count, REPEATED), block_bytes), dtype=np.uint8)
    if dtype is Type.Q4_K:  # six-bit scales and mins of 32
        blocks[:, 4:12], blocks[:, 12:16] = 32, 0
    if dtype is Type.Q6_K:
        blocks[:, 192:208] = 16
    for at, factor in STEPS[dtype]:
        step = np.float16(factor / SPREAD[dtype] / np.sqrt(columns))
        blocks[:, at : at + 2] = np.frombuffer(step.tobytes(), np.uint8)
    return np.resize(blocks, (count, block_bytes)).reshape(rows, -1)


def type_of(types, name, layer, layers):
    """As llama.cpp's mixture of the name has it: some values and down projections have six bits."""
    if types != "q4_k_m":
        return Type[types.upper()]
    eighth = layers // 8
    chosen = layer < eighth or layer >= layers - eighth or (layer - eighth) % 3 == 2
    return Type.Q6_K if name in ("token_embd", "output") or (name in ("attn_v", "ffn_down") and chosen) else Type.Q4_K


def copy_vocabulary(writer, donor):
    add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
    lists = {"tokenizer.ggml.tokens": writer.add_token_list, "tokenizer.ggml.merges": writer.add_token_merges,
             "tokenizer.ggml.token_type": writer.add_token_types, "tokenizer.ggml.scores": writer.add_token_scores}  # fmt: skip
    for key, field in gguf.GGUFReader(donor).fields.items():
        if not key.startswith("tokenizer."):
            continue
        value = field.contents()
        if key in lists:
            lists[key](value)
        elif type(value) in add:
            add[type(value)](key, value)
        if key == "tokenizer.ggml.tokens":
            tokens = len(value)
    return tokens


def describe_hybrid(writer, shape, layers):
    """What only LFM2, Granite 4 or Qwen 3.5 says."""
    if shape.arch == "lfm2":
        writer.add_shortconv_l_cache(TAPS)
    if shape.arch == "granitehybrid":
        writer.add_attention_scale(1.0 / shape.head_dim)
        writer.add_embedding_scale(12.0)
        writer.add_residual_scale(0.22)
        writer.add_logit_scale(6.0)
        writer.add_rope_scaling_finetuned(False)
        writer.add_ssm_conv_kernel(SPACE_TAPS)
        writer.add_ssm_state_size(SPACE_STATE)
        writer.add_ssm_group_count(1)
        writer.add_ssm_time_step_rank(SPACE_HEADS)
        writer.add_ssm_inner_size(SPACE_HEADS * SPACE_DIM)
    if shape.arch == "qwen35":
        writer.add_ssm_conv_kernel(NET_TAPS)
        writer.add_ssm_state_size(NET_DIM)
        writer.add_ssm_group_count(NET_HEADS)
        writer.add_ssm_time_step_rank(NET_HEADS)
        writer.add_ssm_inner_size(NET_HEADS * NET_DIM)
        writer.add_full_attention_interval(4)
        writer.add_rope_dimension_sections([11, 11, 10, 0])


def add_mixer(writer, rng, shape, block, layer, matrix):
    """What a layer has instead of attention."""
    width, inner = shape.width, NET_HEADS * NET_DIM

    def floats(name, *extents):
        values = rng.standard_normal(extents) / np.sqrt(extents[-1])
        writer.add_tensor(f"{block}.{name}", values.astype(np.float32))

    if shape.arch == "lfm2":
        matrix(f"{block}.shortconv.in_proj", 3 * width, width, layer)
        matrix(f"{block}.shortconv.out_proj", width, width, layer)
        floats("shortconv.conv.weight", width, TAPS)
        return
    if shape.arch == "granitehybrid":
        values, channels = SPACE_HEADS * SPACE_DIM, SPACE_HEADS * SPACE_DIM + 2 * SPACE_STATE
        matrix(f"{block}.ssm_in", values + channels + SPACE_HEADS, width, layer)
        matrix(f"{block}.ssm_out", width, values, layer)
        floats("ssm_conv1d.weight", channels, SPACE_TAPS)
        floats("ssm_conv1d.bias", channels)
        writer.add_tensor(f"{block}.ssm_a", -np.linspace(1.0, 16.0, SPACE_HEADS, dtype=np.float32).reshape(-1, 1))
        writer.add_tensor(f"{block}.ssm_d", np.ones((SPACE_HEADS, 1), np.float32))
        writer.add_tensor(f"{block}.ssm_dt.bias", np.full(SPACE_HEADS, -4.0, np.float32))
        writer.add_tensor(f"{block}.ssm_norm.weight", np.ones((1, values), np.float32))
        return
    matrix(f"{block}.attn_qkv", 3 * inner, width, layer)
    matrix(f"{block}.attn_gate", inner, width, layer)
    matrix(f"{block}.ssm_out", width, inner, layer)
    floats("ssm_alpha.weight", NET_HEADS, width)
    floats("ssm_beta.weight", NET_HEADS, width)
    floats("ssm_conv1d.weight", 3 * inner, NET_TAPS)
    writer.add_tensor(f"{block}.ssm_a", -np.linspace(0.5, 8.0, NET_HEADS, dtype=np.float32))
    writer.add_tensor(f"{block}.ssm_dt.bias", np.full(NET_HEADS, -2.0, np.float32))
    writer.add_tensor(f"{block}.ssm_norm.weight", np.ones(NET_DIM, np.float32))


def write(donor, out, name, types, layers):
    shape, rng = SHAPES[name], np.random.default_rng(1)
    layers = layers or shape.layers
    writer = gguf.GGUFWriter(out, shape.arch)
    vocabulary = copy_vocabulary(writer, donor)
    writer.add_name(f"random {name} {types}")
    writer.add_context_length(131072)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    attends = [shape.attention is None or layer in shape.attention for layer in range(layers)]
    writer.add_head_count_kv([shape.kv_heads * has for has in attends] if shape.arch in ("lfm2", "granitehybrid") else shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim // 4 if shape.arch == "qwen35" else shape.head_dim)
    describe_hybrid(writer, shape, layers)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)

    def norm(tensor, size):
        writer.add_tensor(f"{tensor}.weight", np.ones(size, np.float32))

    def matrix(tensor, rows, columns, layer=0):
        dtype = type_of(types, tensor.rpartition(".")[2], layer, layers)
        writer.add_tensor(f"{tensor}.weight", random_blocks(rng, rows, columns, dtype), raw_dtype=dtype)

    matrix("token_embd", vocabulary, shape.width)
    norm("token_embd_norm" if shape.arch == "lfm2" else "output_norm", shape.width)
    if shape.own_head:
        matrix("output", vocabulary, shape.width)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for layer in range(layers):
        block = f"blk.{layer}"
        norm(f"{block}.attn_norm", shape.width)
        norm(f"{block}.{'post_attention_norm' if shape.arch == 'qwen35' else 'ffn_norm'}", shape.width)
        for tensor, rows, columns in (("ffn_gate", shape.hidden, shape.width), ("ffn_up", shape.hidden, shape.width),
                                      ("ffn_down", shape.width, shape.hidden)):  # fmt: skip
            matrix(f"{block}.{tensor}", rows, columns, layer)
        if not attends[layer]:
            add_mixer(writer, rng, shape, block, layer, matrix)
            continue
        if shape.arch not in ("llama", "granitehybrid"):
            norm(f"{block}.attn_q_norm", shape.head_dim)
            norm(f"{block}.attn_k_norm", shape.head_dim)
        gated = 2 if shape.arch == "qwen35" else 1
        for tensor, rows, columns in (("attn_q", gated * queries, shape.width), ("attn_k", keys, shape.width),
                                      ("attn_v", keys, shape.width), ("attn_output", shape.width, queries)):  # fmt: skip
            matrix(f"{block}.{tensor}", rows, columns, layer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("donor")
    parser.add_argument("out")
    parser.add_argument("--shape", required=True, choices=SHAPES)
    parser.add_argument("--types", default="q4_k_m", choices=("q4_k_m", "q8_0", "q4_0"))
    parser.add_argument("--layers", type=int, default=0, help="fewer than the shape has, to save disk and time")
    a = parser.parse_args()
    write(a.donor, a.out, a.shape, a.types, a.layers)


if __name__ == "__main__":
    main()
