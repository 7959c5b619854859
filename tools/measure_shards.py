#!/usr/bin/env python3
"""What 8-bit weights change: shards of a model as int8 beside the same shards as f16, on a text.

    tools/measure_shards.py MODEL TEXT [--tokens 512] [--threads 2]

Prints a table. "change": cosine between what an int8 shard adds to the residual stream and what the f16 shard adds, from
the same input, by layer and token. "logits": cosine of the whole chain's logits, each with its own memory; KL in nats from
f16 to int8; how often the likeliest token is the same. Special tokens (the first of the text) are left out. Needs the
Python package (tools/test_python.sh builds one in a venv) and NumPy.
"""

import argparse
import tempfile
from pathlib import Path

import kvtide
import numpy as np

VARIANTS = {
    "f16": {},
    "int8, a scale per channel": {"type": "int8", "scales": "channel"},
    "int8, a scale per tensor": {"type": "int8", "scales": "tensor"},
    "int8 per tensor, query and key f16": {"type": "int8", "scales": "tensor", "keep_f16": ["query", "key"]},
}


class Chain:
    """All shards of a folder and one state for each attention shard."""

    def __init__(self, path: Path, threads: int) -> None:
        self.folder = kvtide.ShardFolder(path, threads=threads)
        opened = {info.name: self.folder.open(info.name) for info in self.folder.shards}
        self.layers = []
        for kind_pair in zip(
            sorted((s for s in opened.values() if s.kind == "attention"), key=lambda s: s.info.layer),
            sorted((s for s in opened.values() if s.kind == "mlp"), key=lambda s: s.info.layer),
        ):
            self.layers.append(kind_pair)
        self.embedding = opened["embedding"]
        self.heads = sorted((s for s in opened.values() if s.kind == "head"), key=lambda s: s.info.vocabulary.start)
        self.own = [attention.make_state() for attention, _ in self.layers]
        self.beside = [attention.make_state() for attention, _ in self.layers]
        self.nbytes = sum(info.nbytes for info in self.folder.shards)

    def attention(self, shard: kvtide.Shard, state: kvtide.ShardState, x: np.ndarray, first: int) -> np.ndarray:
        columns, slots = x.shape[2], self.folder.slots
        seen = np.full((1, 1, columns, slots), -1e4, np.float32)
        written = np.zeros((1, 1, slots, columns), np.float32)
        for t in range(columns):
            lowest = max(0, first + t + 1 - (shard.info.window or slots))
            seen[0, 0, t, lowest : first + t + 1] = 0
            written[0, 0, first + t, t] = 1
        cos, sin = self.folder.rope_rows(shard.info.rope, first, columns)
        inputs = {"x": x, "rope_cos": cos, "rope_sin": sin, "attention_mask": seen, "write_mask": written}
        return shard.predict(inputs, state)

    def read(self, ids: np.ndarray, first: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The residual stream before every shard and behind the last, and the logits [T, vocabulary]."""
        stream = [self.embedding.predict({"ids": ids, "first": first})]
        for (attention, mlp), state in zip(self.layers, self.own):
            stream.append(self.attention(attention, state, stream[-1], first))
            stream.append(mlp.predict({"x": stream[-1]}))
        return stream, self.logits(stream[-1])

    def logits(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([head.predict({"x": x}) for head in self.heads], axis=1)[0, :, :, 0].T

    def changes(self, stream: list[np.ndarray], first: int) -> list[np.ndarray]:
        """What every shard adds to the inputs of `stream`, each on its own."""
        out = []
        for layer, (attention, mlp) in enumerate(self.layers):
            before, between = stream[2 * layer], stream[2 * layer + 1]
            out.append(self.attention(attention, self.beside[layer], before, first) - before)
            out.append(mlp.predict({"x": between}) - between)
        return out


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of the columns of [1, channels, T, 1]."""
    a, b = a[0, :, :, 0].astype(np.float64), b[0, :, :, 0].astype(np.float64)
    return (a * b).sum(0) / (np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0) + 1e-300)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with kvtide.Model(options.model) as model:
        text = options.text.read_text(encoding="utf-8")[: 8 * options.tokens]
        ids = model.tokenizer.encode(text)[: options.tokens]
    with tempfile.TemporaryDirectory() as scratch:
        chains = {}
        for name, how in VARIANTS.items():
            path = Path(scratch, str(len(chains)))
            kvtide.ShardFolder.export(options.model, path, slots=len(ids), **how)
            chains[name] = Chain(path, options.threads)
        plain = chains["f16"]
        change = {name: [] for name in chains}
        logit = {name: [] for name in chains}
        kl = {name: [] for name in chains}
        same = {name: [] for name in chains}
        for first in range(0, len(ids), 4):
            chunk = ids[first : first + 4]
            stream, wanted = plain.read(chunk, first)
            added = [after - before for before, after in zip(stream, stream[1:])]
            start = 1 if first == 0 else 0
            for name, chain in chains.items():
                if chain is plain:
                    continue
                _, got = chain.read(chunk, first)
                mine = chain.changes(stream, first)
                change[name].append(np.array([cosines(a, b)[start:] for a, b in zip(added, mine)]))
                a, b = log_softmax(wanted[start:]), log_softmax(got[start:])
                kl[name].append((np.exp(a) * (a - b)).sum(-1))
                same[name].append(a.argmax(-1) == b.argmax(-1))
                logit[name].append(cosines(wanted[start:].T[None, :, :, None], got[start:].T[None, :, :, None]))
        print("| weights | MiB | change: mean | change: smallest | logits: mean | logits: smallest | KL | same token |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name, chain in chains.items():
            row = [name, f"{chain.nbytes / 2**20:.1f}"]
            if chain is not plain:
                c, g = np.concatenate(change[name], axis=1), np.concatenate(logit[name])
                row += [f"{c.mean():.6f}", f"{c.min():.4f}", f"{g.mean():.6f}", f"{g.min():.4f}"]
                row += [f"{np.concatenate(kl[name]).mean():.5f}", f"{100 * np.concatenate(same[name]).mean():.1f}%"]
            print("| " + " | ".join(row + [""] * (8 - len(row))) + " |")


if __name__ == "__main__":
    main()
