"""A random model whose vocabulary has plain words, written as GGUF: what tests of recall can be run on."""

import random
import struct
from array import array
from pathlib import Path
from typing import NamedTuple

WORDS = 160
Q8_0, Q8_0_ELEMENTS = 8, 32
U32, F32, STRING, ARRAY, BOOL, I32 = 4, 6, 8, 9, 7, 5
ALIGNMENT = 32


class Shape(NamedTuple):
    width: int = 32
    hidden: int = 64
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32
    layers: int = 2
    trained: int = 1024


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


def matrices(shape: Shape) -> dict:
    """Names of the tensors and their shapes, the inner dimension first, as GGUF says them."""
    width, query, past = shape.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    shapes = {"token_embd.weight": (width, len(vocabulary())), "output_norm.weight": (width,)}
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        shapes |= {
            block + "attn_norm.weight": (width,),
            block + "ffn_norm.weight": (width,),
            block + "attn_q.weight": (width, query),
            block + "attn_k.weight": (width, past),
            block + "attn_v.weight": (width, past),
            block + "attn_output.weight": (query, width),
            block + "ffn_gate.weight": (width, shape.hidden),
            block + "ffn_up.weight": (width, shape.hidden),
            block + "ffn_down.weight": (shape.hidden, width),
        }
    return shapes


def gaussian(numbers: random.Random, name: str, dimensions: tuple) -> tuple:
    """Type and bytes of a tensor in f32; norms are 1."""
    count = dimensions[0] * (dimensions[1] if len(dimensions) > 1 else 1)
    spread = 1.0 if name.startswith("token") else dimensions[0] ** -0.5
    values = [1.0] * count if len(dimensions) == 1 else [numbers.gauss(0.0, spread) for _ in range(count)]
    return 0, array("f", values).tobytes()


def eight_bits(numbers: random.Random, name: str, dimensions: tuple) -> tuple:
    """The same in q8_0, quickly: for shapes of which only the speed counts. Columns repeat."""
    if len(dimensions) == 1:
        return gaussian(numbers, name, dimensions)
    scale = struct.pack("<e", dimensions[0] ** -0.5 / 74)  # whole numbers of all sizes have a deviation of 74
    row = b"".join(scale + numbers.randbytes(Q8_0_ELEMENTS) for _ in range(8 * dimensions[0] // Q8_0_ELEMENTS))
    return Q8_0, (row * (dimensions[1] // 8 + 1))[: len(row) // 8 * dimensions[1]]


def write(path: Path, shape: Shape = Shape(), tensor=gaussian) -> Path:
    tokens = vocabulary()
    keys = [
        key("general.architecture", STRING, text("llama")),
        key("general.name", STRING, text("words")),
        u32("llama.context_length", shape.trained),
        u32("llama.embedding_length", shape.width),
        u32("llama.block_count", shape.layers),
        u32("llama.feed_forward_length", shape.hidden),
        u32("llama.attention.head_count", shape.heads),
        u32("llama.attention.head_count_kv", shape.kv_heads),
        u32("llama.attention.key_length", shape.head_dim),
        u32("llama.attention.value_length", shape.head_dim),
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
    numbers = random.Random(1)
    infos, data, size = [], [], 0
    for name, dimensions in matrices(shape).items():
        kind, content = tensor(numbers, name, dimensions)
        infos.append(text(name) + struct.pack("<I", len(dimensions)) + struct.pack(f"<{len(dimensions)}Q", *dimensions)
                     + struct.pack("<IQ", kind, size))  # fmt: skip
        data.append(content + bytes(-len(content) % ALIGNMENT))
        size += len(data[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        file.writelines(data)
    return path
