#!/usr/bin/env python3
"""Writes the bits of src/kernels/codebooks.h: which points of 4 or 8 elements the types iq1, iq2 and iq3 know.

    python tools/make_codebooks.py            # print the arrays
    python tools/make_codebooks.py --check    # fail if the header holds other ones

The points come from the grids of the `gguf` package, which has them from ggml.
"""

import argparse
import pathlib
import re
import sys

import numpy as np
from gguf import quants

HEADER = pathlib.Path(__file__).resolve().parent.parent / "src/kernels/codebooks.h"
# The levels of an element; the step between numbers that can be points at all.
CODEBOOKS = {"IQ2_XXS": (3, 2), "IQ2_XS": (3, 2), "IQ2_S": (3, 2), "IQ1_S": (3, 1), "IQ3_XXS": (8, 1), "IQ3_S": (8, 1)}


def words_of(name: str, base: int, step: int) -> list[int]:
    """One bit for every number; the points are in the order of their numbers, so that the bits say all."""
    kind = getattr(quants, name)
    kind.init_grid()
    levels = list(kind.grid_map)
    digits = np.vectorize(levels.index)(kind.grid.reshape(kind.grid_shape).astype(int))
    numbers = (digits * base ** np.arange(digits.shape[1])).sum(1)
    assert (numbers % step == 0).all() and (np.diff(numbers) > 0).all(), name
    words = [0] * ((base ** digits.shape[1] - 1) // step // 64 + 1)
    for number in (numbers // step).tolist():
        words[number // 64] |= 1 << number % 64
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the header instead of printing")
    check = parser.parse_args().check
    header = HEADER.read_text()
    for name, (base, step) in CODEBOOKS.items():
        words = words_of(name, base, step)
        constant = f"k{name.title().replace('_', '')}Points"
        if not check:
            print(f"inline constexpr std::uint64_t {constant}[] = {{" + ", ".join(f"0x{w:016x}" for w in words) + "};")
            continue
        found = re.search(constant + r"\[\] = \{([^}]*)\}", header)
        if found is None or [int(w, 16) for w in re.findall(r"0x[0-9a-f]+", found[1])] != words:
            print(f"{HEADER}: {constant} is not what the gguf package has", file=sys.stderr)
            return 1
    if check:
        print(f"{HEADER}: {len(CODEBOOKS)} codebooks as the gguf package has them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
