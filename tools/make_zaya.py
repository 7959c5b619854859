"""Writes a random checkpoint of the size of ZAYA1-8B: 8-bit integers with scales, one shard per block.

    python tools/make_zaya.py FOLDER [--blocks 40]

Every block holds the same random integers, so that writing takes a minute; in memory and on the disk each is a block of its
own: 8.3 GB for all 40. Matrices of the attention, the router and the experts are I8 with a scale per output, convolutions
and vectors F32. The model speaks bytes: it is for measuring memory and speed, not for reading what it writes.
"""

import argparse
import array
import json
import math
import pathlib
import random
import struct

WIDTH, HEADS, KV_HEADS, HEAD, EXPERTS, INNER, ROUTER, VOCABULARY = 2048, 8, 2, 128, 16, 2048, 256, 262272
CHANNELS = (HEADS + KV_HEADS) * HEAD
STEP = 73.0  # standard deviation of integers from -127 to 127
BYTES = sorted([*range(33, 127), *range(161, 173), *range(174, 256)])  # that stand for themselves in byte-level BPE


class Random:
    """Pieces of one long string of random integers, so that a block costs no more than copying."""

    def __init__(self, seed: int):
        stream = random.Random(seed)
        self.values = stream.randbytes(1 << 24).replace(b"\x80", b"\x81")  # -128 has no opposite
        self.floats = array.array("f", (stream.gauss(0.0, 1.0) for _ in range(1 << 14)))
        self.at = 0

    def integers(self, count: int) -> list[bytes]:
        pieces = []
        while count > 0:
            piece = self.values[self.at : self.at + count]
            pieces.append(piece)
            count -= len(piece)
            self.at = (self.at + len(piece) + 4099) % len(self.values)
        return pieces

    def normal(self, count: int, centre: float, spread: float) -> list[bytes]:
        return [array.array("f", (centre + spread * self.floats[i % len(self.floats)] for i in range(count))).tobytes()]


class Shard:
    def __init__(self, stream: Random):
        self.stream, self.header, self.data, self.size = stream, {}, [], 0

    def add(self, name: str, dtype: str, shape: list[int], pieces: list[bytes]) -> None:
        size = sum(len(piece) for piece in pieces)
        self.header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [self.size, self.size + size]}
        self.data += pieces
        self.size += size

    def matrix(self, name: str, shape: list[int], gain: float = 1.0) -> None:
        rows = math.prod(shape[:-1])
        self.add(name, "I8", shape, self.stream.integers(rows * shape[-1]))
        scale = struct.pack("<f", gain / (STEP * math.sqrt(shape[-1])))
        self.add(name + "_scale", "F32", [*shape[:-1], 1], [scale * rows])

    def floats(self, name: str, shape: list[int], centre: float = 0.0, spread: float = 0.1) -> None:
        self.add(name, "F32", shape, self.stream.normal(math.prod(shape), centre, spread))

    def write(self, path: pathlib.Path) -> None:
        text = json.dumps(self.header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for piece in self.data:
                file.write(piece)


def add_merge(shard: Shard, name: str) -> None:
    for half in ("hidden_states", "residual"):
        shard.floats(f"{name}.{half}_scale", [WIDTH], 0.7, 0.02)
        shard.floats(f"{name}.{half}_bias", [WIDTH], 0.0, 0.02)


def block(number: int) -> Shard:
    shard, name = Shard(Random(40)), f"model.layers.{number}."
    shard.floats(name + "input_layernorm.weight", [WIDTH], 1.0)
    attention = name + "self_attn."
    shard.matrix(attention + "qkv_proj.q_proj.weight", [HEADS * HEAD, WIDTH])
    shard.matrix(attention + "qkv_proj.k_proj.weight", [KV_HEADS * HEAD, WIDTH])
    shard.matrix(attention + "qkv_proj.v_proj_current.weight", [KV_HEADS * HEAD // 2, WIDTH])
    shard.matrix(attention + "qkv_proj.v_proj_delayed.weight", [KV_HEADS * HEAD // 2, WIDTH])
    shard.floats(attention + "qkv_proj.conv_qk_depthwise.weight", [CHANNELS, 1, 2], 0.0, 0.7)
    shard.floats(attention + "qkv_proj.conv_qk_depthwise.bias", [CHANNELS])
    shard.floats(attention + "qkv_proj.conv_qk_grouped.weight", [CHANNELS, HEAD, 2], 0.0, 0.06)
    shard.floats(attention + "qkv_proj.conv_qk_grouped.bias", [CHANNELS])
    shard.floats(attention + "qk_norm.temp", [KV_HEADS], 1.0)
    shard.matrix(attention + "o_proj.weight", [WIDTH, HEADS * HEAD])
    add_merge(shard, name + "post_attention_residual_scale")
    shard.floats(name + "post_attention_layernorm.weight", [WIDTH], 1.0)
    router = name + "mlp.gate."
    shard.matrix(router + "down_proj.weight", [ROUTER, WIDTH])
    shard.floats(router + "down_proj.bias", [ROUTER])
    if number > 0:
        shard.floats(router + "router_states_scale", [ROUTER], 0.5)
    shard.floats(router + "router_mlp.norm.weight", [ROUTER], 1.0)
    shard.matrix(router + "router_mlp.fc1.weight", [ROUTER, ROUTER], 2.0)
    shard.floats(router + "router_mlp.fc1.bias", [ROUTER], 0.0, 0.01)
    shard.matrix(router + "router_mlp.fc2.weight", [ROUTER, ROUTER], 2.0)
    shard.floats(router + "router_mlp.fc2.bias", [ROUTER], 0.0, 0.01)
    shard.matrix(router + "router_mlp.out_proj.weight", [EXPERTS + 1, ROUTER], 2.0)
    balance = [0.0] * EXPERTS + [-1.0]  # as it begins in training: the slot that skips is not chosen
    shard.add(router + "balancing_biases", "F32", [EXPERTS + 1], [struct.pack(f"<{EXPERTS + 1}f", *balance)])
    shard.matrix(name + "mlp.experts.gate_up_proj", [EXPERTS, 2 * INNER, WIDTH])
    shard.matrix(name + "mlp.experts.down_proj", [EXPERTS, WIDTH, INNER])
    add_merge(shard, name + "post_mlp_residual_scale")
    return shard


def rest() -> Shard:
    shard = Shard(Random(41))
    shard.matrix("model.embed_tokens.weight", [VOCABULARY, WIDTH], 4.0)
    shard.floats("model.input_hidden_states_scale", [WIDTH], 1.0)
    shard.floats("model.input_hidden_states_bias", [WIDTH])
    shard.floats("model.norm.weight", [WIDTH], 1.0)
    return shard


def write_tokenizer(folder: pathlib.Path) -> None:
    stand_ins = [chr(byte) if byte in BYTES else None for byte in range(256)]
    spare = iter(range(256, 512))
    tokens = ["<pad>", "<unk>", "<bos>", "<eos>", *(text or chr(next(spare)) for text in stand_ins)]
    special = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i in range(4)]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}  # fmt: skip
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
             "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")


def write_config(folder: pathlib.Path, blocks: int) -> None:
    rope = {"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.5}
    config = {"architectures": ["ZayaForCausalLM"], "model_type": "zaya", "vocab_size": VOCABULARY, "hidden_size": WIDTH,
              "num_hidden_layers": blocks, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
              "head_dim": HEAD, "moe_intermediate_size": INNER, "num_experts": EXPERTS, "num_experts_per_tok": 1,
              "router_hidden_size": ROUTER, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
              "hidden_act": "silu", "cca_time0": 2, "cca_time1": 2, "attention_bias": False, "lm_head_bias": False,
              "layer_types": ["hybrid"] * blocks, "rope_parameters": {"hybrid": rope}, "tie_word_embeddings": True,
              "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--blocks", type=int, default=40)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    places, total = {}, 0
    for number in range(args.blocks + 1):
        shard = block(number) if number < args.blocks else rest()
        file = f"model-{number + 1:05}-of-{args.blocks + 1:05}.safetensors"
        shard.write(args.folder / file)
        places |= dict.fromkeys(shard.header, file)
        total += shard.size
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    (args.folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    write_tokenizer(args.folder)
    write_config(args.folder, args.blocks)
    print(f"{args.folder}: {args.blocks} blocks, {total / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
