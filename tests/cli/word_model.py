"""A random model whose vocabulary has plain words, written as GGUF: what tests of recall can be run on."""

import random
import struct
from array import array
from pathlib import Path

WORDS = 160
WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, TRAINED = 32, 64, 2, 1, 32, 2, 1024
U32, F32, STRING, ARRAY, BOOL, I32 = 4, 6, 8, 9, 7, 5
ALIGNMENT = 32


def text(value: str) -> bytes:
    content = value.encode("utf-8")
    return struct.pack("<Q", len(content)) + content


def key(name: str, kind: int, payload: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + payload


def u32(name: str, value: int) -> bytes:
    return key(name, U32, struct.pack("<I", value))


def f32(name: str, value: float) -> bytes:
    return key(name, F32, struct.pack("<f", value))


def strings(name: str, values: list) -> bytes:
    return key(name, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def words() -> list:
    """A space (written as the byte-level vocabularies do) and five letters each, no two alike."""
    return ["\u0120" + "".join(chr(97 + index // 26**place % 26) for place in range(5)) for index in range(WORDS)]


def vocabulary() -> list:
    marks = ["\u0120", "\u010a", "th", ".", ",", "?", ":"]
    letters = [chr(code) for code in (*range(65, 91), *range(97, 123), *range(48, 58))]
    return ["<s>", "</s>", *marks, *letters, *words()]


def write(path: Path) -> Path:
    tokens = vocabulary()
    keys = [
        key("general.architecture", STRING, text("llama")),
        key("general.name", STRING, text("words")),
        u32("llama.context_length", TRAINED),
        u32("llama.embedding_length", WIDTH),
        u32("llama.block_count", LAYERS),
        u32("llama.feed_forward_length", HIDDEN),
        u32("llama.attention.head_count", HEADS),
        u32("llama.attention.head_count_kv", KV_HEADS),
        u32("llama.attention.key_length", HEAD_DIM),
        u32("llama.attention.value_length", HEAD_DIM),
        f32("llama.attention.layer_norm_rms_epsilon", 1e-5),
        f32("llama.rope.freq_base", 10000.0),
        key("tokenizer.ggml.model", STRING, text("gpt2")),
        key("tokenizer.ggml.pre", STRING, text("gpt-2")),
        strings("tokenizer.ggml.tokens", tokens),
        key("tokenizer.ggml.token_type", ARRAY,
            struct.pack("<IQ", I32, len(tokens)) + array("i", [3, 3] + [1] * (len(tokens) - 2)).tobytes()),
        strings("tokenizer.ggml.merges", ["t h"]),
        u32("tokenizer.ggml.bos_token_id", 0),
        u32("tokenizer.ggml.eos_token_id", 1),
        key("tokenizer.ggml.add_bos_token", BOOL, struct.pack("<?", True)),
    ]  # fmt: skip
    shapes = {"token_embd.weight": (WIDTH, len(tokens)), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        shapes |= {
            block + "attn_norm.weight": (WIDTH,),
            block + "ffn_norm.weight": (WIDTH,),
            block + "attn_q.weight": (WIDTH, HEADS * HEAD_DIM),
            block + "attn_k.weight": (WIDTH, KV_HEADS * HEAD_DIM),
            block + "attn_v.weight": (WIDTH, KV_HEADS * HEAD_DIM),
            block + "attn_output.weight": (HEADS * HEAD_DIM, WIDTH),
            block + "ffn_gate.weight": (WIDTH, HIDDEN),
            block + "ffn_up.weight": (WIDTH, HIDDEN),
            block + "ffn_down.weight": (HIDDEN, WIDTH),
        }
    numbers = random.Random(1)
    infos, data = [], b""
    for name, shape in shapes.items():
        data += bytes(-len(data) % ALIGNMENT)
        infos.append(text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
                     + struct.pack("<IQ", 0, len(data)))  # fmt: skip
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        spread = 1.0 if name.startswith("token") else shape[0] ** -0.5
        values = [1.0] * count if len(shape) == 1 else [numbers.gauss(0.0, spread) for _ in range(count)]
        data += array("f", values).tobytes()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
    return path
