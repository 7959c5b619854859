#!/usr/bin/env python3
"""Writes tests/goldens/procedural/four_bits.golden: rows, their Hadamard transforms, and how well four bits can hold them.

    python tools/make_four_bit_goldens.py            # write
    python tools/make_four_bit_goldens.py --check    # make again in memory; fail if the stored file differs

By the definitions, in double precision: the transform as a product with the matrix of signs, and of every block of 32
transformed elements the least squared error that any scale of a half gives to integers from -8 to 7, by trying
all of them near the best. Needs NumPy only. Rows are multiples of 1/16, as in seal.golden.

The file is text up to the line "end" (`row DIM` for each row), then raw little-endian data row by row: i1 [dim], the row in
sixteenths; f4 [dim], the transform; f4 [dim / 32], the least squared errors of its blocks.
"""

import argparse
import pathlib
import sys

import numpy as np

SEED = 20260215
PATH = pathlib.Path(__file__).resolve().parent.parent / "tests/goldens/procedural/four_bits.golden"
DIMS = [32, 64, 64, 96, 128, 256, 512]


def matrix(dim: int) -> np.ndarray:
    part = dim & -dim
    signs = np.array([[(-1.0) ** bin(i & j).count("1") for j in range(part)] for i in range(part)])
    return np.kron(np.eye(dim // part), signs / np.sqrt(part))


def least_error(block: np.ndarray) -> float:
    """Over every half of either sign whose levels could cover the block."""
    halves = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    top = np.abs(block).max()
    halves = halves[(halves >= top / 16) & (halves <= top / 2)]
    scales = np.concatenate([halves, -halves])[:, None]
    off = block - scales * np.clip(np.rint(block / scales), -8, 7)
    return float((off**2).sum(axis=1).min())


def build() -> bytes:
    rng = np.random.default_rng(SEED)
    header = ["kvtide four bit goldens", f"made by numpy {np.__version__} seed {SEED}"]
    body = []
    for number, dim in enumerate(DIMS):
        row = rng.normal(0, 1.2, dim)
        row[rng.choice(dim, 2, replace=False)] += 5.0  # as rotated keys have
        if number == 2:
            row[:] = 1.0  # all of it in one element of the transform
        sixteenths = np.clip(np.round(row * 16), -127, 127)
        spread = matrix(dim) @ (sixteenths / 16)
        errors = [least_error(block) if np.abs(block).max() > 1e-9 else 0.0 for block in spread.reshape(-1, 32)]
        header.append(f"row {dim}")
        body += [sixteenths.astype("i1").tobytes(), spread.astype("<f4").tobytes(), np.array(errors, "<f4").tobytes()]
    return ("\n".join(header) + "\nend\n").encode() + b"".join(body)


def without_version(data: bytes) -> tuple[list[bytes], bytes]:
    head, body = data.split(b"\nend\n", 1)
    lines = head.split(b"\n")
    return lines[:1] + lines[2:], body


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file instead of writing it")
    made = build()
    if not parser.parse_args().check:
        PATH.write_bytes(made)
        print(f"{PATH}: {len(made)} bytes")
        return 0
    stored_head, stored = without_version(PATH.read_bytes())
    made_head, body = without_version(made)
    at, same = 0, stored_head == made_head and len(stored) == len(body)
    for dim in DIMS if same else []:
        same &= stored[at : at + dim] == body[at : at + dim]
        floats = slice(at + dim, at + dim + 4 * (dim + dim // 32))
        same &= bool(np.allclose(np.frombuffer(stored[floats], "<f4"), np.frombuffer(body[floats], "<f4"), atol=1e-5))
        at = floats.stop
    print(f"{PATH}: " + ("the program makes the stored numbers" if same else "differs"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
