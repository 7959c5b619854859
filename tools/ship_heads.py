#!/usr/bin/env python3
"""Writes src/model/shipped_heads.cpp: the head tables that come with the library, by the model file's SHA-256.

    tools/ship_heads.py MODEL.gguf HEADS.tsv NAME [MODEL HEADS NAME ...]

HEADS.tsv is what `kvtide heads -m MODEL.gguf --out HEADS.tsv` wrote.
"""

import hashlib
import sys
from pathlib import Path

FRONT = """// shipped_heads.cpp: written by tools/ship_heads.py; do not edit.
#include "model/shipped_heads.h"

namespace kvtide {
namespace {

constexpr ShippedHeads kTables[] = {
"""
BACK = """};

}  // namespace

std::span<const ShippedHeads> shipped_head_texts() { return kTables; }

}  // namespace kvtide
"""


def main() -> int:
    words = sys.argv[1:]
    if not words or len(words) % 3:
        print(__doc__, file=sys.stderr)
        return 2
    text = FRONT
    for model, heads, name in zip(words[::3], words[1::3], words[2::3]):
        digest = hashlib.sha256(Path(model).read_bytes()).hexdigest()
        text += f'    // {name}\n    {{"{digest}",\n     R"({Path(heads).read_text()})"}},\n'
    target = Path(__file__).resolve().parents[1] / "src" / "model" / "shipped_heads.cpp"
    target.write_text(text + BACK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
