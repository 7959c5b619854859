"""Compares kvtide with the references, live. Needs tools/requirements-references.txt.

    python tools/references/compare.py --kvtide build/kvtide [--models DIR] [--text FILE]

  goldens     the tiny models are built again and equal the committed ones; torch_model.py agrees with transformers;
              the committed goldens of the real models are what torch_model.py says today
  tiny        kvtide's logits of every tiny model, and the same bits when the text is read 7 tokens at a time
  real        kvtide's logits of the models found in DIR at 256 positions, --exact with an f32 memory
  perplexity  of the first chunks of FILE, --exact and default

Prints one line per check and ends with `N passed, N failed`; the exit status is 1 if any failed.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import gguf
import numpy as np
import torch

import kvtide_cli
import real_goldens
import tiny_models
from gguf_vocab import Vocabulary
from kvtide_cli import ProgramError
from perplexity import perplexity, read_text
from tiny_models import GOLDENS
from torch_model import TorchModel

# Two independent float32 programs differ by up to 1e-5 on these models (measured), so a rebuild may by as much.
REBUILT_WEIGHTS, REBUILT_LOGITS = 1e-6, 2e-5
TINY_LOGITS = 2e-4
# As shares of the range of the logits at a position.
REAL_GOLDENS = 2e-5  # float32 against float64 is 3e-6
REAL_LOGITS = 2e-3
PPL_EXACT, PPL_DEFAULT = 0.0005, 0.005
PPL_CONTEXT, PPL_CHUNKS = 512, 20


class Table:
    """Prints each check as it is done and counts."""

    def __init__(self):
        self.passed = self.failed = 0

    def row(self, ok: bool, check: str, measured: str) -> None:
        self.passed += ok
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'}  {check:44} {measured}", flush=True)

    def below(self, check: str, measured: float, limit: float, more: str = "") -> None:
        # `<=` is false for NaN: a NaN fails.
        self.row(bool(measured <= limit), check, f"{measured:.2e} (limit {limit:.0e}){more}")

    def same(self, check: str, measured: bytes, expected: bytes) -> None:
        self.row(measured == expected, check, "the same bytes" if measured == expected else "other bytes")

    def attempt(self, check: str, action) -> None:
        """Runs an action that adds rows itself; a refusal is one failed row and the rest goes on."""
        try:
            action()
        except (ProgramError, ValueError, OSError) as error:
            self.row(False, check, str(error))


def largest(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        raise ValueError(f"shape {list(a.shape)} where {list(b.shape)} was expected")
    return float(np.abs(a.astype(np.float64) - b).max())


def check_rebuilt(table: Table, rebuilt: pathlib.Path, entry: dict) -> None:
    old, new = (gguf.GGUFReader(str(folder / entry["model"])) for folder in (GOLDENS, rebuilt))

    def keys(reader):
        return {name: field.contents() for name, field in reader.fields.items()}

    names = [tensor.name for tensor in old.tensors]
    if keys(old) != keys(new) or names != [tensor.name for tensor in new.tensors]:
        raise ValueError("metadata or tensor names differ from the committed file")
    weights = max(largest(b.data, a.data) for a, b in zip(old.tensors, new.tensors))
    logits = largest(np.load(rebuilt / entry["logits"]), np.load(GOLDENS / entry["logits"]))
    table.below(f"{entry['name']}: rebuilt weights", weights, REBUILT_WEIGHTS)
    table.below(f"{entry['name']}: rebuilt logits", logits, REBUILT_LOGITS)


def check_tiny(table: Table, program: str, entry: dict, manifest: dict, scratch: pathlib.Path) -> None:
    name, model, want = entry["name"], GOLDENS / entry["model"], np.load(GOLDENS / entry["logits"])
    ids = np.load(GOLDENS / manifest["ids"])
    table.below(f"{name}: torch_model", largest(TorchModel(str(model)).logits(ids).numpy(), want), REBUILT_LOGITS)

    def by_program(*flags: str) -> np.ndarray:
        text, out = GOLDENS / manifest["text"], scratch / "logits.npy"
        return kvtide_cli.logits(program, model, text, out, "--no-bos", *kvtide_cli.EXACT, *flags)

    got = by_program()
    table.below(f"{name}: kvtide", largest(got, want), TINY_LOGITS)
    table.same(f"{name}: chunks of 7", by_program("--prefill-chunk", "7").tobytes(), got.tobytes())


def check_real_golden(table: Table, name: str, entry: dict, ids: list[int], logits: torch.Tensor) -> None:
    """The best ids may swap when their logits are closer than the noise: compared are the values of the stored ids."""
    best = real_goldens.BEST
    top = torch.from_numpy(np.load(GOLDENS / entry["top"]))
    if np.load(GOLDENS / entry["ids"]).tolist() != ids:
        raise ValueError("the ids of the text differ from the committed ones")
    rest = torch.from_numpy(real_goldens.summary(logits))[:, 2 * best :]
    now = torch.cat((logits.gather(1, top[:, :best].long()), rest), dim=1)
    table.below(f"{name}: committed golden", real_goldens.largest_share(now - top[:, best:], logits), REAL_GOLDENS)


def check_real_logits(table: Table, name: str, want: torch.Tensor, got: torch.Tensor) -> None:
    if got.shape != want.shape:
        raise ValueError(f"shape {list(got.shape)} where {list(want.shape)} was expected")
    span = want.max(dim=1).values - want.min(dim=1).values
    off = ((got - want).abs().max(dim=1).values / span).max().item()
    two = torch.topk(want, 2, dim=1)
    clear = (two.values[:, 0] - two.values[:, 1]) > REAL_LOGITS * span
    wrong = int((got.argmax(dim=1)[clear] != two.indices[clear, 0]).sum())
    table.below(f"{name}: kvtide, {len(want)} positions", off, REAL_LOGITS, " of the range")
    table.row(wrong == 0, f"{name}: best token", f"differs at {wrong} of {int(clear.sum())} clear positions")


def check_perplexity(table: Table, name: str, want: dict, got: dict, limit: float, mode: str) -> None:
    if got["tokens_scored"] != want["tokens_scored"] or len(got["chunks"]) != len(want["chunks"]):
        raise ValueError(f"scored {got['tokens_scored']} tokens in {len(got['chunks'])} chunks, "
                         f"the reference {want['tokens_scored']} in {len(want['chunks'])}")  # fmt: skip
    off = abs(got["ppl"] / want["ppl"] - 1)
    table.below(f"{name}: perplexity, {mode}", off, limit, f" {got['ppl']:.4f}, reference {want['ppl']:.4f}")


def check_real(table: Table, program: str, name: str, path: pathlib.Path, entry: dict, text: str | None,
               scratch: pathlib.Path) -> None:  # fmt: skip
    vocabulary, reference = Vocabulary(str(path)), TorchModel(str(path))
    prose, ids = real_goldens.first_ids(vocabulary, (GOLDENS / entry["text"]).read_text("utf-8"))
    want = reference.logits(ids)
    table.attempt(f"{name}: committed golden", lambda: check_real_golden(table, name, entry, ids, want))

    def by_program() -> None:
        (scratch / "prose.txt").write_text(prose, encoding="utf-8")
        got = kvtide_cli.logits(program, path, scratch / "prose.txt", scratch / "logits.npy", *kvtide_cli.EXACT)
        check_real_logits(table, name, want, torch.from_numpy(got))

    table.attempt(f"{name}: kvtide", by_program)
    if text is None:
        return
    (scratch / "text.txt").write_text(text, encoding="utf-8", newline="")
    score = perplexity(reference, vocabulary, text, PPL_CONTEXT, PPL_CHUNKS)

    def perplexity_of(mode: str, limit: float, *flags: str) -> None:
        got = kvtide_cli.perplexity(program, path, scratch / "text.txt", PPL_CONTEXT, PPL_CHUNKS, *flags)
        check_perplexity(table, name, score, got, limit, mode)

    table.attempt(f"{name}: perplexity, exact", lambda: perplexity_of("exact", PPL_EXACT, "--exact"))
    table.attempt(f"{name}: perplexity, default", lambda: perplexity_of("default", PPL_DEFAULT))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvtide", required=True, help="the program")
    parser.add_argument("--models", type=pathlib.Path, help="folder with the real models; absent ones are skipped")
    parser.add_argument("--text", type=pathlib.Path, help="text for the perplexity")
    parser.add_argument("-t", "--threads", type=int, default=2, help="threads of the reference")
    args = parser.parse_args()
    program = shutil.which(args.kvtide)
    if program is None:
        parser.error(f"--kvtide {args.kvtide}: no such program; `make build` makes it")
    torch.set_num_threads(args.threads)
    table = Table()
    with tempfile.TemporaryDirectory(prefix="kvtide-references-") as folder:
        scratch = pathlib.Path(folder)
        committed = json.loads((GOLDENS / "manifest.json").read_text("utf-8"))
        rebuilt = tiny_models.build_all(scratch / "tiny")
        for key in ("text", "ids"):
            name = committed[key]
            new = (scratch / "tiny" / rebuilt[key]).read_bytes()
            table.same(f"tiny models: {name}", new, (GOLDENS / name).read_bytes())
        new, old = ([entry["name"] for entry in manifest["models"]] for manifest in (rebuilt, committed))
        table.row(new == old, "tiny models: list", f"{len(new)} models, {len(old)} committed")
        for entry in committed["models"]:
            name = entry["name"]
            table.attempt(f"{name}: rebuilt", lambda: check_rebuilt(table, scratch / "tiny", entry))
            table.attempt(f"{name}: kvtide", lambda: check_tiny(table, program, entry, committed, scratch))

        found = real_goldens.find_models(args.models) if args.models else {}
        text = read_text(args.text) if args.text else None
        for entry in json.loads((GOLDENS / "real_models.json").read_text("utf-8"))["models"]:
            name = entry["name"]
            if name not in found:
                print(f"skip  {name}: {args.models or 'no --models folder'} holds no file with its SHA-256")
                continue
            table.attempt(name, lambda: check_real(table, program, name, found[name], entry, text, scratch))
    print(f"{table.passed} passed, {table.failed} failed")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
