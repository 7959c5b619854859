"""Correct random ZAYA1 models of 8 to 40 layers must pass, whatever their routers do.

    python tests/python/random_zaya.py [--seeds 200]

Each seed is one model: as f32 or with 8-bit weights, read exactly and in the arithmetic of every day, and as f16 and int8
shards, against their own weights, the model they were made of, and arrays of a NumPy port of it. Exit status 1 when one fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Iterator

import numpy as np
import tiny_checkpoints
from numpy_port import Port

import kvtide

TOKENS = 24


def arrays(folder: Path, config: dict, weights: dict, tokens: list[int]) -> Path:
    """What the model gives, as golden arrays."""
    port = Port(config, weights)
    state = port.make_state()
    said = port.predict(tokens, state)
    folder.mkdir()
    np.save(folder / "tokens.npy", np.array(tokens, np.int32))
    for name in ("hidden", "logits"):
        np.save(folder / f"{name}.npy", np.ascontiguousarray(said[name], np.float32))
    for layer in range(port.layers):
        keys, values = port.rows(state, layer)
        np.save(folder / f"keys.{layer}.npy", np.ascontiguousarray(keys))
        np.save(folder / f"values.{layer}.npy", np.ascontiguousarray(values))
    return folder


def reports(folder: Path, seed: int) -> Iterator[tuple[str, kvtide.validation.Report]]:
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(seed)
    layers, dtype = int(draw.integers(8, 41)), ("F32", "I8")[seed % 2]
    config = tiny_checkpoints.config_of("zaya", layers, experts=int(draw.choice([4, 8, 16])))
    weights = tiny_checkpoints.weights_of(config, seed)
    path = tiny_checkpoints.save(folder / "model", config, weights, dtype)
    tokens = draw.integers(3, 64, TOKENS).tolist()
    name = f"seed {seed}, {layers} layers, {config['num_experts']} experts, {dtype}"
    with kvtide.Model.load(path, threads=1) as model:
        for exact in (True, False):
            yield f"{name}, {'exact' if exact else 'every day'}", kvtide.validate(model, tokens=tokens, exact=exact, free=8, threads=1)
    golden = arrays(folder / "arrays", config, weights, tokens) if dtype == "F32" else None
    for kind in ("f16", "int8"):
        kvtide.ShardFolder.export(path, folder / kind, type=kind, slots=64, min_elements=1)
        shards = kvtide.ShardFolder(folder / kind, threads=1)
        yield f"{name}, {kind} shards", kvtide.validate(shards, tokens=tokens, free=8, threads=1)
        yield f"{name}, {kind} shards against the model", kvtide.validate(shards, path, tokens, free=8, threads=1)
        if golden is not None:
            yield f"{name}, {kind} shards against arrays", kvtide.validate(shards, golden, threads=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    judged = failed = ties = 0
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory(prefix="kvtide-zaya-") as folder:
            for name, report in reports(Path(folder), seed):
                judged += 1
                ties += "router_tie" in report.notes
                if not report:
                    failed += 1
                    print(f"FALSE ALARM: {name}: {report.findings[0].cause if report.findings else ''}", flush=True)
                    print(*(f"    {c.name}: {c.detail}" for c in report.checks if c.outcome == "failed"), sep="\n", flush=True)
    print(f"{options.seeds} models, {judged} validations, {ties} with ties of routers, {failed} false alarms")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
