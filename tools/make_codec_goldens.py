#!/usr/bin/env python3
"""Writes tests/goldens/codec/codec.golden: blocks of every weight type and the floats the `gguf` package makes of them.

    python tools/make_codec_goldens.py            # write
    python tools/make_codec_goldens.py --check    # make again in memory; fail if the stored file differs

Blocks are random bytes, then extremes: every f16 scale runs through zeros, subnormals, the largest and negative values
while the packed integers are random, all zeros, all ones or 0x80 (-128 as a signed byte). NaN and infinite scales are
left out: kvtide refuses them when it loads.

The file is text up to the line "end", then raw little-endian data in the order of the "type" lines:
    type NAME ELEMENTS BYTES       BYTES of blocks, then ELEMENTS float32 decoded from them
    encode NAME ELEMENTS BYTES     ELEMENTS float32, then the BYTES of blocks they are encoded to
"""

import argparse
import importlib.metadata
import pathlib
import sys

import gguf
import numpy as np

SEED = 20250611
PATH = pathlib.Path(__file__).resolve().parent.parent / "tests/goldens/codec/codec.golden"
Q = gguf.GGMLQuantizationType

# Where the f16 scales and the small integer scales of a block lie: (byte offsets of f16s, range of integer scales).
LAYOUTS = {
    Q.Q4_0: ([0], None),
    Q.Q4_1: ([0, 2], None),
    Q.Q5_0: ([0], None),
    Q.Q5_1: ([0, 2], None),
    Q.Q8_0: ([0], None),
    Q.Q2_K: ([80, 82], (0, 16)),
    Q.Q3_K: ([108], (96, 108)),
    Q.Q4_K: ([0, 2], (4, 16)),
    Q.Q5_K: ([0, 2], (4, 16)),
    Q.Q6_K: ([208], (192, 208)),
    Q.IQ4_NL: ([0], None),
}
# The same of types that came later; random numbers of their own, so that the goldens above stay what they are.
LATER_LAYOUTS = {
    Q.IQ4_XS: ([0], (2, 8)),
    Q.IQ3_XXS: ([0], (66, 98)),
    Q.IQ3_S: ([0], (106, 110)),
    Q.IQ2_XXS: ([0], None),
    Q.IQ2_XS: ([0], (66, 74)),
    Q.IQ2_S: ([0], (74, 82)),
    Q.IQ1_S: ([0], (34, 50)),
    Q.IQ1_M: ([], (48, 56)),  # its f16 lies in four parts
    Q.TQ1_0: ([52], None),
    Q.TQ2_0: ([64], None),
}
IQ1_M_SCALES = slice(48, 56)
# 0, -0, smallest and largest subnormal, smallest normal, 1, -1, largest, smallest and largest negative, 0.1
EXTREME_HALVES = [0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0x8001, 0xFBFF, 0x2E66]
FILLS = [None, 0x00, 0xFF, 0x80]  # None: random


def set_halves(block: np.ndarray, offsets: list[int], bits: list[int]) -> None:
    for offset, value in zip(offsets, bits):
        block[offset : offset + 2] = np.array([value], dtype="<u2").view(np.uint8)


def set_scattered_half(block: np.ndarray, bits: int) -> None:
    """A quarter of the f16 in the upper four bits of each of four words, the lowest first."""
    words = block[IQ1_M_SCALES].view("<u2")
    words[:] = (words & 0x0FFF) | [(bits >> 4 * i & 15) << 12 for i in range(4)]


def blocks_of(qtype: gguf.GGMLQuantizationType, rng: np.random.Generator) -> np.ndarray:
    offsets, scales = (LAYOUTS | LATER_LAYOUTS)[qtype]
    _, size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = []
    for _ in range(8):
        block = rng.integers(0, 256, size, dtype=np.uint8)
        halves = rng.normal(0, 0.05, len(offsets)).astype(np.float16).view(np.uint16)
        set_halves(block, offsets, [int(h) for h in halves])
        if qtype == Q.IQ1_M:
            set_scattered_half(block, int(rng.normal(0, 0.05, 1).astype(np.float16).view(np.uint16)[0]))
        blocks.append(block)
    for i, half in enumerate(EXTREME_HALVES):
        block = rng.integers(0, 256, size, dtype=np.uint8)
        fill = FILLS[i % len(FILLS)]
        if fill is not None:
            block[:] = fill
        if scales is not None and FILLS[(i + 1) % len(FILLS)] is not None:
            block[scales[0] : scales[1]] = FILLS[(i + 1) % len(FILLS)]
        set_halves(block, offsets, [half, EXTREME_HALVES[(i * 3 + 5) % len(EXTREME_HALVES)]])
        if qtype == Q.IQ1_M:
            set_scattered_half(block, half)
        blocks.append(block)
    return np.concatenate(blocks)


def plain_floats(qtype: gguf.GGMLQuantizationType, rng: np.random.Generator) -> np.ndarray:
    if qtype == Q.F32:
        bits = rng.integers(0, 1 << 32, 250, dtype=np.uint32)
        extremes = np.array([0, 1 << 31, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF], dtype=np.uint32)
        return np.concatenate([bits[np.isfinite(bits.view(np.float32))], extremes]).astype("<u4").view(np.uint8)
    bits = rng.integers(0, 1 << 16, 1000, dtype=np.uint16)
    bits = np.concatenate([bits, np.array(EXTREME_HALVES, dtype=np.uint16)])
    exponent = 0x7C00 if qtype == Q.F16 else 0x7F80
    return bits[(bits & exponent) != exponent].astype("<u2").view(np.uint8)


def mxfp4_blocks(rng: np.random.Generator) -> np.ndarray:
    """An exponent and sixteen bytes; ordinary exponents, then the extremes of those whose six is finite."""
    blocks = rng.integers(0, 256, (24, 17), dtype=np.uint8)
    blocks[:, 0] = [*rng.integers(100, 140, 16), 0, 1, 2, 3, 127, 128, 251, 252]
    return blocks.ravel()


def rows_to_encode(rng: np.random.Generator) -> np.ndarray:
    """Blocks of 32: ordinary values, halves that test rounding away from zero, zeros, tiny, large, one outlier."""
    ordinary = rng.normal(0, 1, (16, 32))
    halves = (np.arange(-32, 32).reshape(2, 32) * 2 + 1) / 2
    halves[:, 0] = 127.0  # the scale becomes exactly 1
    outlier = rng.normal(0, 1e-3, (2, 32))
    outlier[:, 5] = [-1000.0, 60000.0]
    rows = [ordinary, halves, np.zeros((1, 32)), -np.zeros((1, 32)), outlier, ordinary[:2] * 1e-6, ordinary[:2] * 1e4]
    return np.concatenate(rows).astype("<f4").ravel()


def build() -> bytes:
    rng = np.random.default_rng(SEED)
    versions = {name: importlib.metadata.version(name) for name in ("gguf", "numpy")}
    header = ["kvtide codec goldens", f"made by gguf {versions['gguf']} numpy {versions['numpy']} seed {SEED}"]
    body = []
    for qtype in [Q.F32, Q.F16, *LAYOUTS, Q.BF16]:
        blocks = blocks_of(qtype, rng) if qtype in LAYOUTS else plain_floats(qtype, rng)
        floats = gguf.quants.dequantize(blocks, qtype).astype("<f4", copy=False)
        assert np.isfinite(floats).all(), qtype
        header.append(f"type {qtype.name.lower()} {floats.size} {blocks.size}")
        body += [blocks.tobytes(), floats.tobytes()]
    blocks = mxfp4_blocks(np.random.default_rng(SEED + 1))
    floats = gguf.quants.dequantize(blocks, Q.MXFP4).astype("<f4", copy=False)
    header.append(f"type mxfp4 {floats.size} {blocks.size}")
    body += [blocks.tobytes(), floats.tobytes()]
    later = np.random.default_rng(SEED + 2)
    for qtype in LATER_LAYOUTS:
        blocks = blocks_of(qtype, later)
        floats = gguf.quants.dequantize(blocks, qtype).astype("<f4", copy=False)
        assert np.isfinite(floats).all(), qtype
        header.append(f"type {qtype.name.lower()} {floats.size} {blocks.size}")
        body += [blocks.tobytes(), floats.tobytes()]
    rows = rows_to_encode(rng)
    for qtype in [Q.F32, Q.F16, Q.Q8_0]:
        blocks = gguf.quants.quantize(rows, qtype).view(np.uint8)
        header.append(f"encode {qtype.name.lower()} {rows.size} {blocks.size}")
        body += [rows.tobytes(), blocks.tobytes()]
    return ("\n".join(header) + "\nend\n").encode() + b"".join(body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file instead of writing it")
    check = parser.parse_args().check
    made = build()
    if not check:
        PATH.parent.mkdir(parents=True, exist_ok=True)
        PATH.write_bytes(made)
        print(f"{PATH}: {len(made)} bytes")
        return 0
    # The second line names versions, which may differ without any difference in what they compute.
    stored, fresh = (data.split(b"\n", 2) for data in (PATH.read_bytes(), made))
    if stored[0] != fresh[0] or stored[2] != fresh[2]:
        print(f"{PATH}: the gguf package now gives other bits; stored: {stored[1].decode()}", file=sys.stderr)
        return 1
    print(f"{PATH}: the gguf package gives the stored bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
