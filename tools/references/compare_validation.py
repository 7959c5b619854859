"""Runs `kvtide validate` where it must pass: on folders against arrays of `transformers`, on real models against themselves.

    python tools/references/compare_validation.py --kvtide build/kvtide [--models build/models]

  rebuilt   the committed golden arrays are computed again and agree
  folders   every tiny folder that `transformers` reads, layer by layer, exactly
  models    both real models, in their everyday arithmetic and exactly
"""

import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np
import transformers

import golden_arrays
import kvtide_cli
from compare import REBUILT_LOGITS, Table, largest
from golden_arrays import TEXT, arrays_of

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens"
FOLDERS = ("llama-f32", "mistral-f16-shards", "qwen2-bf16", "gemma3-f32", "gpt2-f32", "gpt2-long-f16", "zaya-f16")
FLOATS = ["--exact", "-ctk", "f32", "-ctv", "f32", "--gate", "0.999999"]


def load(name: str):
    return golden_arrays.load(GOLDENS / "folders" / name)


def check_rebuilt(table: Table) -> None:
    for folder in sorted((GOLDENS / "validate").iterdir()):
        old = {path.stem: np.load(path) for path in folder.glob("*.npy")}
        new = arrays_of(load(folder.name), old["tokens"].tolist(), len(old["continuation"]))
        if old.keys() != new.keys():
            raise ValueError(f"{folder.name}: other arrays: {sorted(old.keys() ^ new.keys())}")
        off = max(largest(new[name].astype(np.float32), old[name].astype(np.float32)) for name in old)
        table.below(f"{folder.name}: rebuilt golden arrays", off, REBUILT_LOGITS)


def check_validation(table: Table, name: str, program: str, *words: str) -> None:
    report = json.loads(kvtide_cli.run(program, "validate", *words, "--json"))
    worst = min(min(s["isolated"]["change_cosine"]) for s in report["schedules"])
    table.row(report["passed"] and not report["findings"], f"{name}: validate", f"worst cosine {worst:.6f}, gate {report['gate']}")


def check_folder(table: Table, name: str, program: str, scratch: pathlib.Path) -> None:
    model = load(name)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(GOLDENS / "folders" / name / "tokenizer.json"))
    scratch.mkdir()
    for key, array in arrays_of(model, tokenizer(TEXT)["input_ids"][:64], 16).items():
        np.save(scratch / f"{key}.npy", np.ascontiguousarray(array))
    check_validation(table, name, program, str(GOLDENS / "folders" / name), "--reference", str(scratch), *FLOATS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvtide", required=True)
    parser.add_argument("--models", type=pathlib.Path)
    options = parser.parse_args()
    table = Table()
    table.attempt("golden arrays", lambda: check_rebuilt(table))
    with tempfile.TemporaryDirectory(prefix="kvtide-validate-") as folder:
        for name in FOLDERS:
            table.attempt(name, lambda: check_folder(table, name, options.kvtide, pathlib.Path(folder) / name))
    for path in sorted(options.models.glob("*.gguf")) if options.models else []:
        for words in ([], ["--exact"]):
            name = " ".join([path.stem, *words])
            table.attempt(name, lambda: check_validation(table, name, options.kvtide, str(path), *words))
    print(f"{table.passed} passed, {table.failed} failed")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
