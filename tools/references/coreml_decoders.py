"""Language models in torch as people port them to Core ML, in any size and with random weights, and how coremltools converts them.

Five ways that published exporters keep their memory:

    Gpt2      keyCache, valueCache of all layers and a counter pastLen; ids and a mask of ones as long as the text
    Llama     keyCache, valueCache; ids and a causal mask whose length says the position
    Qwen3     one kv_cache [2 layers, heads, rows, dim]; 1x1 convolutions; functions infer and prefill; parts in packages of their own
    Gemma3    two caches: of the layers with a window, which is shifted, and of those that see all
    Shard     one layer; the row that is written comes as a mask; 1 to 4 tokens
"""

from __future__ import annotations

import pathlib
import tempfile

import coremltools as ct
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    """Root mean square, along the last axis or, for activations with channels first, along axis 1."""

    def __init__(self, width: int, axis: int = -1) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))
        self.axis = axis

    def forward(self, x):
        weight = self.weight if self.axis == -1 else self.weight.view(1, -1, 1, 1)
        return x * torch.rsqrt(x.pow(2).mean(self.axis, keepdim=True) + 1e-5) * weight


def states_of(module: nn.Module) -> list:
    return [ct.StateType(ct.TensorType(shape=buffer.shape, dtype=np.float16), name)
            for name, buffer in module.named_buffers() if name in module.STATES]  # fmt: skip


def convert(module: nn.Module, example: tuple, inputs: list, output: str):
    traced = torch.jit.trace(module.eval(), example, check_trace=False)
    return ct.convert(traced, inputs=inputs, outputs=[ct.TensorType(output, dtype=np.float16)], states=states_of(module),
                      minimum_deployment_target=ct.target.iOS18, skip_model_load=True)  # fmt: skip


def clear(module: nn.Module) -> None:
    for name, buffer in module.named_buffers():
        if name in module.STATES:
            buffer.zero_()


def causal(tokens: int, end: int, length: int | None = None) -> np.ndarray:
    """[1, 1, tokens, length]: nothing where a token sees, -1e4 elsewhere. The text ends at `end`."""
    seen = np.arange(length or end)[None, :] <= np.arange(end - tokens, end)[:, None]
    return np.where(seen, 0.0, -1e4).astype(np.float32)[None, None]


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Gpt2(nn.Module):
    STATES = ("keyCache", "valueCache", "pastLen")

    def __init__(self, layers=2, heads=4, dim=16, vocabulary=64, slots=32) -> None:
        super().__init__()
        self.L, self.H, self.D, self.V, self.S = layers, heads, dim, vocabulary, slots
        width = heads * dim
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(slots, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(dict(n1=nn.LayerNorm(width), n2=nn.LayerNorm(width), qkv=nn.Linear(width, 3 * width),
                               o=nn.Linear(width, width), up=nn.Linear(width, 4 * width), down=nn.Linear(4 * width, width)))
            for _ in range(layers))  # fmt: skip
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("keyCache", torch.zeros(layers, 1, heads, slots, dim))
        self.register_buffer("valueCache", torch.zeros(layers, 1, heads, slots, dim))
        self.register_buffer("pastLen", torch.zeros(1))

    def forward(self, input_ids, attention_mask):
        tokens, end = input_ids.shape[-1], attention_mask.shape[-1]
        past = end - tokens
        places = self.pastLen.int() + torch.arange(tokens, dtype=torch.int32)
        x = self.tokens(input_ids) + self.places(places)[None]
        seen = torch.arange(end)[None, :] <= torch.arange(past, end)[:, None]
        hidden = torch.where(seen & (attention_mask[0] > 0)[None, :], 0.0, -1e4)
        for i, layer in enumerate(self.layers):
            q, k, v = layer["qkv"](layer["n1"](x)).split(self.H * self.D, -1)
            q, k, v = (t.view(1, tokens, self.H, self.D).transpose(1, 2) for t in (q, k, v))
            self.keyCache[i : i + 1, :, :, past:end] = k[None]
            self.valueCache[i : i + 1, :, :, past:end] = v[None]
            k, v = self.keyCache[i, :, :, :end], self.valueCache[i, :, :, :end]
            y = torch.softmax(q @ k.transpose(2, 3) / self.D**0.5 + hidden, -1) @ v
            x = x + layer["o"](y.transpose(1, 2).reshape(1, tokens, -1))
            x = x + layer["down"](F.gelu(layer["up"](layer["n2"](x)), approximate="tanh"))
        self.pastLen.add_(tokens)
        return self.head(self.norm(x))

    def inputs(self, ids: np.ndarray, end: int) -> dict[str, np.ndarray]:
        return {"input_ids": ids, "attention_mask": np.ones((1, end), np.int32)}

    def package(self):
        tokens, end = ct.RangeDim(1, self.S, default=1), ct.RangeDim(1, self.S, default=1)
        return convert(self, (torch.zeros((1, 2), dtype=torch.int32), torch.ones((1, 5), dtype=torch.int32)),
                       [ct.TensorType("input_ids", (1, tokens), np.int32), ct.TensorType("attention_mask", (1, end), np.int32)],
                       "logits")  # fmt: skip


class Llama(nn.Module):
    STATES = ("keyCache", "valueCache")

    def __init__(self, sdpa: bool, layers=2, heads=4, kv=2, dim=16, inner=128, vocabulary=64, slots=32, base=100.0) -> None:
        super().__init__()
        self.L, self.H, self.KV, self.D, self.V, self.S, self.sdpa = layers, heads, kv, dim, vocabulary, slots, sdpa
        width = heads * dim
        self.embed = nn.Embedding(vocabulary, width)

        def plain(inputs, outputs):
            return nn.Linear(inputs, outputs, bias=False)

        self.layers = nn.ModuleList(
            nn.ModuleDict(dict(n1=Norm(width), n2=Norm(width), q=plain(width, width), k=plain(width, kv * dim),
                               v=plain(width, kv * dim), o=plain(width, width), gate=plain(width, inner),
                               up=plain(width, inner), down=plain(inner, width)))
            for _ in range(layers))  # fmt: skip
        self.norm, self.head = Norm(width), plain(width, vocabulary)
        self.register_buffer("keyCache", torch.zeros(layers, 1, kv, slots, dim))
        self.register_buffer("valueCache", torch.zeros(layers, 1, kv, slots, dim))
        self.register_buffer("freqs", 1.0 / base ** (torch.arange(0, dim, 2).float() / dim))

    def forward(self, inputIds, causalMask):
        tokens, end = inputIds.shape[-1], causalMask.shape[-1]
        past = end - tokens
        angles = torch.arange(past, end).float()[:, None] * self.freqs[None, :]
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embed(inputIds)
        for i, layer in enumerate(self.layers):
            y = layer["n1"](x)
            q = rotate(layer["q"](y).view(1, tokens, self.H, self.D).transpose(1, 2), cos, sin)
            k = rotate(layer["k"](y).view(1, tokens, self.KV, self.D).transpose(1, 2), cos, sin)
            v = layer["v"](y).view(1, tokens, self.KV, self.D).transpose(1, 2)
            self.keyCache[i : i + 1, :, :, past:end] = k[None]
            self.valueCache[i : i + 1, :, :, past:end] = v[None]
            k = self.keyCache[i, :, :, :end].repeat_interleave(self.H // self.KV, dim=1)
            v = self.valueCache[i, :, :, :end].repeat_interleave(self.H // self.KV, dim=1)
            if self.sdpa:
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=causalMask)
            else:
                y = torch.softmax(q @ k.transpose(2, 3) / self.D**0.5 + causalMask, -1) @ v
            x = x + layer["o"](y.transpose(1, 2).reshape(1, tokens, -1))
            y = layer["n2"](x)
            x = x + layer["down"](F.silu(layer["gate"](y)) * layer["up"](y))
        return self.head(self.norm(x))

    def inputs(self, ids: np.ndarray, end: int) -> dict[str, np.ndarray]:
        return {"inputIds": ids, "causalMask": causal(ids.shape[1], end)}

    def package(self):
        tokens, end = ct.RangeDim(1, self.S, default=1), ct.RangeDim(1, self.S, default=1)
        return convert(self, (torch.zeros((1, 2), dtype=torch.int32), torch.zeros((1, 1, 2, 5))),
                       [ct.TensorType("inputIds", (1, tokens), np.int32),
                        ct.TensorType("causalMask", (1, 1, tokens, end), np.float16)], "logits")  # fmt: skip


class ConvBlock(nn.Module):
    """Attention and a feed-forward of 1x1 convolutions over [1, width, 1, T]."""

    def __init__(self, width: int, heads: int, kv: int, dim: int, inner: int, gelu: bool = False) -> None:
        super().__init__()
        self.H, self.KV, self.D, self.gelu = heads, kv, dim, gelu

        def point(inputs, outputs):
            return nn.Conv2d(inputs, outputs, 1, bias=False)

        self.n1, self.n2, self.nq, self.nk = Norm(width), Norm(width), Norm(dim), Norm(dim)
        self.q, self.k, self.v, self.o = (point(width, heads * dim), point(width, kv * dim), point(width, kv * dim),
                                          point(heads * dim, width))  # fmt: skip
        self.gate, self.up, self.down = point(width, inner), point(width, inner), point(inner, width)

    def qkv(self, x, cos, sin):
        """x [1, T, width] to heads [1, heads, T, dim] of queries, keys, values."""
        y = self.n1(x).transpose(1, 2).unsqueeze(2)
        tokens = x.shape[1]
        q, k, v = (p(y).view(1, n, self.D, tokens).transpose(2, 3)
                   for p, n in ((self.q, self.H), (self.k, self.KV), (self.v, self.KV)))  # fmt: skip
        return rotate(self.nq(q), cos, sin), rotate(self.nk(k), cos, sin), v

    def rest(self, x, q, keys, values, mask):
        """Attention of q over [1, kv, rows, dim], and what follows."""
        tokens = x.shape[1]
        keys, values = (t.unsqueeze(2).repeat(1, 1, self.H // self.KV, 1, 1).view(1, self.H, -1, self.D) for t in (keys, values))
        y = torch.softmax(q @ keys.transpose(2, 3) / self.D**0.5 + mask, -1) @ values
        y = y.transpose(2, 3).reshape(1, self.H * self.D, 1, tokens)
        x = x + self.o(y).squeeze(2).transpose(1, 2)
        y = self.n2(x).transpose(1, 2).unsqueeze(2)
        gate = self.gate(y)
        gate = F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)
        return x + self.down(gate * self.up(y)).squeeze(2).transpose(1, 2)


class RotationTables(nn.Module):
    def __init__(self, dim: int, slots: int, base: float) -> None:
        super().__init__()
        angles = torch.arange(slots).float()[:, None] / base ** (torch.arange(0, dim, 2).float() / dim)
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, positions):
        return self.cos[positions], self.sin[positions]


class Qwen3(nn.Module):
    """A chunk of layers over one state. `first` and `behind` say which layers it computes; the state has those of all."""

    STATES = ("kv_cache",)

    def __init__(self, first: int, behind: int, layers=2, heads=4, kv=2, dim=16, width=64, slots=32) -> None:
        super().__init__()
        self.first, self.L, self.S, self.width = first, layers, slots, width
        self.blocks = nn.ModuleList(ConvBlock(width, heads, kv, dim, 2 * width) for _ in range(first, behind))
        self.tables = RotationTables(dim, slots, 100.0)
        self.register_buffer("kv_cache", torch.zeros(2 * layers, kv, slots, dim))

    def forward(self, hidden_states, position_ids, causal_mask, current_pos):
        x, tokens = hidden_states, hidden_states.shape[1]
        cos, sin = self.tables(position_ids)
        for i, block in enumerate(self.blocks, self.first):
            q, k, v = block.qkv(x, cos, sin)
            self.kv_cache[i : i + 1, :, current_pos : current_pos + tokens] = k
            self.kv_cache[self.L + i : self.L + i + 1, :, current_pos : current_pos + tokens] = v
            x = block.rest(x, q, self.kv_cache[i : i + 1], self.kv_cache[self.L + i : self.L + i + 1], causal_mask)
        return x

    def package(self, tokens: int):
        example = (torch.zeros(1, tokens, self.width), torch.zeros(tokens, dtype=torch.int32),
                   torch.zeros(1, 1, tokens, self.S), torch.zeros(1, dtype=torch.int32))  # fmt: skip
        names = ("hidden_states", "position_ids", "causal_mask", "current_pos")
        kinds = (np.float16, np.int32, np.float16, np.int32)
        return convert(self, example, [ct.TensorType(n, tuple(e.shape), k) for n, e, k in zip(names, example, kinds)],
                       "output_hidden_states")  # fmt: skip


class Lookup(nn.Module):
    STATES = ()

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    def forward(self, input_ids):
        return self.embedding(input_ids)


class Head(nn.Module):
    """Logits in two parts of the vocabulary."""

    STATES = ()

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.parts = nn.ModuleList(nn.Conv2d(width, vocabulary // 2, 1, bias=False) for _ in range(2))

    def forward(self, hidden_states):
        y = self.norm(hidden_states).transpose(1, 2).unsqueeze(2)
        return tuple(part(y).squeeze(2).transpose(1, 2) for part in self.parts)


class Qwen3Folder:
    """Embeddings, two chunks that share a state, a head, and the meta.yaml that names them."""

    V, WIDTH, BATCH = 64, 64, 4

    def __init__(self) -> None:
        self.embed = Lookup(nn.Embedding(self.V, self.WIDTH))
        self.chunks = [Qwen3(0, 1), Qwen3(1, 2)]
        self.head = Head(self.WIDTH, self.V)
        self.S = self.chunks[0].S

    def clear(self) -> None:
        self.chunks[0].kv_cache.zero_()
        self.chunks[1].kv_cache = self.chunks[0].kv_cache

    def __call__(self, ids: torch.Tensor, first: int) -> torch.Tensor:
        tokens = ids.shape[1]
        x = self.embed(ids)
        mask = torch.from_numpy(causal(tokens, first + tokens, self.S))
        for chunk in self.chunks:
            x = chunk(x, torch.arange(first, first + tokens), mask, torch.tensor([first]))
        return torch.cat(self.head(x), -1)

    def save(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        sizes = ct.EnumeratedShapes([(1, 1), (1, self.BATCH)], default=(1, 1))
        convert(self.embed, (torch.zeros((1, 1), dtype=torch.int32),), [ct.TensorType("input_ids", sizes, np.int32)],
                "hidden_states").save(str(folder / "embeddings.mlpackage"))  # fmt: skip
        for number, chunk in enumerate(self.chunks, 1):
            clear(chunk)
            functions = ct.utils.MultiFunctionDescriptor()
            with tempfile.TemporaryDirectory() as scratch:
                for name, tokens in (("infer", 1), ("prefill", self.BATCH)):
                    chunk.package(tokens).save(f"{scratch}/{name}.mlpackage")
                    functions.add_function(f"{scratch}/{name}.mlpackage", "main", name)
                functions.default_function_name = "infer"
                ct.utils.save_multifunction(functions, str(folder / f"layers_chunk_0{number}of02.mlpackage"))
        traced = torch.jit.trace(self.head.eval(), torch.zeros(1, 1, self.WIDTH))
        ct.convert(traced, inputs=[ct.TensorType("hidden_states", (1, 1, self.WIDTH), np.float16)],
                   outputs=[ct.TensorType(f"logits{i}", dtype=np.float16) for i in (1, 2)],
                   minimum_deployment_target=ct.target.iOS18, skip_model_load=True).save(str(folder / "head.mlpackage"))  # fmt: skip
        (folder / "meta.yaml").write_text("num_chunks: 2\nembeddings: embeddings.mlmodelc\nlm_head: head.mlmodelc\n"
                                          "ffn: layers_chunk_01of02.mlmodelc\n")  # fmt: skip


class Gemma3(nn.Module):
    """One token a call. The cache of the layers with a window is shifted; the other is written at the position."""

    STATES = ("kv_cache_local", "kv_cache_global")

    def __init__(self, heads=4, kv=1, dim=16, width=64, vocabulary=64, slots=32, window=8) -> None:
        super().__init__()
        self.local, self.whole = [0, 1], [2]  # layers
        self.S, self.W, self.V = slots, window, vocabulary
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(ConvBlock(width, heads, kv, dim, 2 * width, gelu=True) for _ in range(3))
        self.tables = nn.ModuleList([RotationTables(dim, slots, 100.0), RotationTables(dim, slots, 1000.0)])
        self.norm, self.head = Norm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("kv_cache_local", torch.zeros(2 * len(self.local), kv, window, dim))
        self.register_buffer("kv_cache_global", torch.zeros(2 * len(self.whole), kv, slots, dim))

    def forward(self, input_ids, position_ids, causal_mask, local_mask, current_pos):
        x = self.embed(input_ids) * 8.0
        for i, block in enumerate(self.blocks):
            at = self.local.index(i) if i in self.local else self.whole.index(i)
            q, k, v = block.qkv(x, *self.tables[0 if i in self.local else 1](position_ids))
            if i in self.local:
                for row, new in ((at, k), (len(self.local) + at, v)):
                    old = self.kv_cache_local[row : row + 1, :, 1:]
                    self.kv_cache_local[row : row + 1] = torch.cat((old, new), 2)
                keys, values = (self.kv_cache_local[r : r + 1] for r in (at, len(self.local) + at))
                x = block.rest(x, q, keys, values, local_mask)
            else:
                for row, new in ((at, k), (len(self.whole) + at, v)):
                    self.kv_cache_global[row : row + 1, :, current_pos : current_pos + 1] = new
                keys, values = (self.kv_cache_global[r : r + 1] for r in (at, len(self.whole) + at))
                x = block.rest(x, q, keys, values, causal_mask)
        return torch.tanh(self.head(self.norm(x)) / 30.0) * 30.0

    def inputs(self, ids: np.ndarray, end: int) -> dict[str, np.ndarray]:
        rows = np.arange(self.W)  # the newest is the last
        local = np.where(rows >= self.W - end, 0.0, -1e4).astype(np.float32)[None, None, None]
        place = np.array([end - 1], np.int32)
        return {"input_ids": ids, "position_ids": place, "causal_mask": causal(1, end, self.S), "local_mask": local,
                "current_pos": place}  # fmt: skip

    def package(self):
        values = self.inputs(np.zeros((1, 1), np.int32), 1)
        kinds = {n: np.int32 if v.dtype == np.int32 else np.float16 for n, v in values.items()}
        return convert(self, tuple(torch.from_numpy(v) for v in values.values()),
                       [ct.TensorType(n, v.shape, kinds[n]) for n, v in values.items()], "logits")  # fmt: skip


class Shard(nn.Module):
    STATES = ("k_cache", "v_cache")

    def __init__(self, heads=4, kv=2, dim=16, width=64, slots=32) -> None:
        super().__init__()
        self.S, self.D, self.width = slots, dim, width
        self.block = ConvBlock(width, heads, kv, dim, 2 * width)
        self.register_buffer("k_cache", torch.zeros(1, kv, slots, dim))
        self.register_buffer("v_cache", torch.zeros(1, kv, slots, dim))
        self.freqs = 1.0 / 100.0 ** (torch.arange(0, dim, 2).float() / dim)

    def forward(self, x, write_mask, attention_mask, rope_cos, rope_sin):
        """x [1, width, T, 1], as the packages of one layer have it."""
        x = x.squeeze(3).transpose(1, 2)
        q, k, v = self.block.qkv(x, torch.cat((rope_cos, rope_cos), -1), torch.cat((rope_sin, rope_sin), -1))
        stays = 1.0 - write_mask.sum(3, keepdim=True)
        for cache, new in ((self.k_cache, k), (self.v_cache, v)):
            cache.mul_(stays)
            cache.add_(write_mask @ new)
        x = self.block.rest(x, q, self.k_cache, self.v_cache, attention_mask)
        return x.transpose(1, 2).unsqueeze(3)

    def inputs(self, x: np.ndarray, end: int) -> dict[str, np.ndarray]:
        tokens = x.shape[2]
        positions = np.arange(end - tokens, end)
        write = (np.arange(self.S)[:, None] == positions[None, :]).astype(np.float32)[None, None]
        angles = positions[:, None] * self.freqs.numpy()[None, :]
        return {"x": x, "write_mask": write, "attention_mask": causal(tokens, end, self.S),
                "rope_cos": np.cos(angles).astype(np.float32), "rope_sin": np.sin(angles).astype(np.float32)}  # fmt: skip

    def package(self):
        values = self.inputs(np.zeros((1, self.width, 2, 1), np.float32), 2)
        tokens = ct.RangeDim(1, 4, default=1)
        shapes = {"x": (1, self.width, tokens, 1), "write_mask": (1, 1, self.S, tokens),
                  "attention_mask": (1, 1, tokens, self.S), "rope_cos": (tokens, self.D // 2), "rope_sin": (tokens, self.D // 2)}  # fmt: skip
        return convert(self, tuple(torch.from_numpy(v) for v in values.values()),
                       [ct.TensorType(n, shapes[n], np.float16) for n in values], "hidden")  # fmt: skip
