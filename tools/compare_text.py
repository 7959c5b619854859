#!/usr/bin/env python3
"""Compares the ids of `kvtide tokenize` with those of `tokenizers` or `sentencepiece` on one megabyte of mixed text and
on generated strings, with and without control markers. Exits with 1 at the first difference, and shows it.

    python tools/compare_text.py --kvtide build/kvtide -m model.gguf [--text FILE]... [--strings 20000] [--seed 1]

The reference is built from the vocabulary in the model file (text_reference.py). Without --text, the mixed text is what
the Python standard library holds in source code, and sentences of several scripts in random order.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile

from make_text_goldens import HARD
from text_reference import Reference, Vocabulary, generated_texts

BATCH = 1000  # generated strings per run of the program


def standard_library(size):
    parts, total = [], 0
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        parts.append(text)
        total += len(text)
        if total >= size:
            break
    return "".join(parts)[:size]


def mixed_text(seed, size=1_000_000):
    rng = random.Random(seed)
    parts = [standard_library(size // 2)]
    total = len(parts[0].encode())
    while total < size:
        text = rng.choice(HARD)
        words = text.split(" ")
        if len(words) > 3 and rng.random() < 0.7:
            rng.shuffle(words)
        text = " ".join(words) + rng.choice(["\n", " ", "", "\n\n", "  "])
        parts.append(text)
        total += len(text.encode())
    return "".join(parts)


class Comparison:
    def __init__(self, kvtide, model):
        self.command = [kvtide, "tokenize", "-m", model, "--json", "--no-bos"]
        self.reference = Reference(Vocabulary.from_gguf(model))
        self.folder = tempfile.TemporaryDirectory()

    def ours(self, text, special):
        path = pathlib.Path(self.folder.name) / "text"
        path.write_bytes(text.encode())
        command = [*self.command, "-f", str(path), *([] if special else ["--no-special"])]
        result = subprocess.run(command, capture_output=True)
        if result.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit status {result.returncode}\n{result.stderr.decode(errors='replace')}")
        return json.loads(result.stdout)["ids"]

    def same(self, text, special):
        ours, theirs = self.ours(text, special), self.reference.encode(text, special)
        self.count += len(theirs)
        if ours == theirs:
            return True
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        self.difference = f"id {at}: kvtide {ours[at:at + 8]}, reference {theirs[at:at + 8]}"
        return False

    def check(self, name, texts, special):
        """All texts, joined by newlines, have the reference's ids; else the smallest part that does not is shown."""
        self.count = 0
        if self.same("\n".join(texts), special):
            return self.count
        while len(texts) > 1:
            half = len(texts) // 2
            broken = next((part for part in (texts[:half], texts[half:]) if not self.same("\n".join(part), special)), None)
            if broken is None:
                break
            texts = broken
        shown = "\n".join(texts)
        sys.exit(f"{name}, markers {'as tokens' if special else 'as text'}: ids differ for {shown[:300]!r}\n{self.difference}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kvtide", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--text", action="append", default=[], help="a UTF-8 file to compare on, instead of the mixed text")
    parser.add_argument("--strings", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    texts = [pathlib.Path(path).read_text(encoding="utf-8") for path in args.text] or [mixed_text(args.seed)]
    strings = generated_texts(args.seed, args.strings)
    comparison = Comparison(args.kvtide, args.model)
    for special in (True, False):
        ids = sum(comparison.check("mixed text", [text], special) for text in texts)
        for i in range(0, len(strings), BATCH):
            ids += comparison.check("generated strings", strings[i : i + BATCH], special)
        size = sum(len(text.encode()) for text in texts)
        print(
            f"{pathlib.Path(args.model).name}: {size} bytes of text and {len(strings)} generated strings, markers "
            f"{'as tokens' if special else 'as text'}: all {ids} ids are the reference's"
        )


if __name__ == "__main__":
    main()
