"""Compares checkpoints in the layout of Hugging Face with `transformers`, live.

    python tools/references/compare_folders.py --kvtide build/kvtide

  rebuilt   the tiny folders are built again and equal the committed ones
  kvtide    its logits at every position, and the same bits when the text is read 7 tokens at a time
"""

import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np

import kvtide_cli
import tiny_folders
from compare import REBUILT_LOGITS, REBUILT_WEIGHTS, TINY_LOGITS, Table, largest
from tiny_models import GOLDENS as TEXTS

# JSON that says who wrote it differs from version to version, and that is all that may.
OF_THE_WRITER = ("transformers_version", "dtype")


def check_rebuilt(table: Table, name: str, old: pathlib.Path, new: pathlib.Path) -> None:
    def config(folder: pathlib.Path) -> dict:
        settings = json.loads((folder / "config.json").read_text("utf-8"))
        return {key: value for key, value in settings.items() if key not in OF_THE_WRITER}

    table.row(config(old) == config(new), f"{name}: rebuilt config", "equal" if config(old) == config(new) else "other")
    table.same(f"{name}: rebuilt tokenizer", (new / "tokenizer.json").read_bytes(), (old / "tokenizer.json").read_bytes())
    off = 0.0
    for file in sorted(old.glob("*.safetensors")):
        ours, theirs = load_as_floats(file), load_as_floats(new / file.name)
        if ours.keys() != theirs.keys():
            raise ValueError(f"{file.name}: other tensors")
        off = max([off, *(largest(theirs[key], ours[key]) for key in ours)])
    table.below(f"{name}: rebuilt weights", off, REBUILT_WEIGHTS)
    table.below(f"{name}: rebuilt logits", largest(np.load(new / "logits.npy"), np.load(old / "logits.npy")), REBUILT_LOGITS)


def load_as_floats(path: pathlib.Path) -> dict[str, np.ndarray]:
    import torch
    from safetensors.torch import load_file as load_torch

    return {name: tensor.to(torch.float32).numpy() for name, tensor in load_torch(path).items()}


def check_program(table: Table, program: str, name: str, folder: pathlib.Path, scratch: pathlib.Path) -> None:
    want = np.load(folder / "logits.npy")

    def logits(*flags: str) -> np.ndarray:
        return kvtide_cli.logits(program, folder, TEXTS / "tiny.txt", scratch / "logits.npy", "--no-bos", *kvtide_cli.EXACT, *flags)

    got = logits()
    table.below(f"{name}: kvtide", largest(got, want), TINY_LOGITS)
    table.same(f"{name}: chunks of 7", logits("--prefill-chunk", "7").tobytes(), got.tobytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvtide", required=True)
    args = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory(prefix="kvtide-folders-") as folder:
        scratch = pathlib.Path(folder)
        names = [entry["name"] for entry in tiny_folders.build_all(scratch / "new")["models"]]
        committed = json.loads((tiny_folders.GOLDENS / "manifest.json").read_text("utf-8"))
        table.row(names == [entry["name"] for entry in committed["models"]], "tiny folders: list", f"{len(names)} folders")
        for name in names:
            old = tiny_folders.GOLDENS / name
            table.attempt(f"{name}: rebuilt", lambda: check_rebuilt(table, name, old, scratch / "new" / name))
            table.attempt(f"{name}: kvtide", lambda: check_program(table, args.kvtide, name, old, scratch))
    print(f"{table.passed} passed, {table.failed} failed")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
