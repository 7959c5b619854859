#!/usr/bin/env python3
"""Compares which safetensors files are accepted with the `safetensors` package, on damaged files made from a seed.

    python tools/compare_safetensors.py --verdicts build/cmake/tests/safetensors_verdicts [--mutants 20000] [--seed 1]
    python tools/compare_safetensors.py --goldens      # write tests/goldens/formats/safetensors.mutants

The damage is done to the header's values, to its text and to its bytes. Exits with 1 when a verdict differs for a reason
that is not listed in EXCEPTIONS. The goldens are a few hundred of the same files and the package's verdicts, which
`make test` compares without the package: [u32 length][u8 accepted][bytes], one after another.
"""

import argparse
import collections
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import safetensors

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "tests/goldens/formats/safetensors.mutants"
SIZES = {"F64": 8, "I64": 8, "F32": 4, "U32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1}
WORDS = ["0", "1", "-1", "-0", "4", "8", "1.0", "1e1", "4294967296", "9223372036854775807", "9223372036854775808",
         "18446744073709551615", "18446744073709551616", "null", "true", "[]", "{}", "\"\"", "\"F32\"", "\"F4\"", "[0,4]",
         "\"\\u0000\"", "\"\\ud800\"", "\"a\"", "[1,1,1,1,1,1,1,1,1]", "1e400", "NaN"]  # fmt: skip


def base(rng):
    """A sound file as (header object, data)."""
    header, data = {}, b""
    if rng.random() < 0.5:
        header["__metadata__"] = {"format": "pt", "who": "me"} if rng.random() < 0.7 else {}
    for i in range(rng.randint(0, 4)):
        dtype = rng.choice(list(SIZES))
        shape = [rng.randint(0 if rng.random() < 0.2 else 1, 3) for _ in range(rng.randint(0, 3))]
        size = SIZES[dtype]
        for extent in shape:
            size *= extent
        header[rng.choice(["w", "layer.", "\u00e9", "a b"]) + str(i)] = {
            "dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size],
        }  # fmt: skip
        data += rng.randbytes(size)
    items = list(header.items())
    rng.shuffle(items)
    return dict(items), data


def pack(text, data):
    return struct.pack("<Q", len(text)) + text + data


def spoil_values(rng, header):
    """Changes one value, name or member of the tree and gives its text back."""
    text = json.dumps(header, separators=rng.choice([(",", ":"), (", ", ": ")]), ensure_ascii=rng.random() < 0.5)
    spots = [i for i, c in enumerate(text) if c in "0123456789\"[{"]
    at = rng.choice(spots)
    end = at + 1
    if text[at] == '"':
        end = text.find('"', at + 1) + 1 or end
    elif text[at].isdigit():
        while end < len(text) and text[end].isdigit():
            end += 1
    else:
        end = text.find("]" if text[at] == "[" else "}", at) + 1 or end
    return text[:at] + rng.choice(WORDS) + text[end:]


def spoil_text(rng, text):
    at = rng.randrange(len(text) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return text[:at] + rng.choice(list("{}[]\",:0123456789 \n\t\r\\e-.\0x")) + text[at:]
    if kind == 1:
        return text[:at] + text[at + rng.randint(1, 4) :]
    if kind == 2:
        other = rng.randrange(len(text) + 1)
        return text[:at] + text[other : other + rng.randint(1, 40)] + text[at:]
    if kind == 3:
        return text + rng.choice([" ", "  \n", "\0", "}", " {}"])
    return rng.choice([" ", "\n", "\ufeff"]) + text


def mutant(rng):
    header, data = base(rng)
    kind = rng.randrange(8)
    if kind == 0:
        return pack(json.dumps(header).encode(), data)  # sound
    if kind <= 3:
        return pack(spoil_values(rng, header).encode("utf-8", "surrogatepass"), data)
    if kind <= 5:
        return pack(spoil_text(rng, json.dumps(header)).encode("utf-8", "surrogatepass"), data)
    whole = bytearray(pack(json.dumps(header).encode(), data))
    if kind == 6:
        for _ in range(rng.randint(1, 3)):
            whole[rng.randrange(len(whole))] = rng.randrange(256)
        return bytes(whole)
    cut = rng.randrange(len(whole))
    return bytes(whole[:cut]) if rng.random() < 0.5 else bytes(whole) + rng.randbytes(rng.randint(1, 9))


def accepts(file):
    try:
        safetensors.deserialize(file)
        return True
    except safetensors.SafetensorError:
        return False


def traits(file):
    """Of a header that is JSON: whether a name stands twice, the most dimensions of a shape, the largest size."""
    twice, most, largest = False, 0, 0

    def look(pairs):
        nonlocal twice, most, largest
        names = [name for name, _ in pairs]
        twice = twice or len(set(names)) < len(names)
        shapes = [value for name, value in pairs if name == "shape" and isinstance(value, list)]
        most = max([most, *map(len, shapes)])
        largest = max([largest, *(size for shape in shapes for size in shape if isinstance(size, int))])
        return dict(pairs)

    try:
        length = struct.unpack("<Q", file[:8])[0]
        json.loads(file[8 : 8 + length], object_pairs_hook=look)
    except (ValueError, struct.error):
        pass
    return twice, most, largest


# Where the two differ on purpose: a name, and what tells the file.
EXCEPTIONS = {
    "a name stands twice: refused here, since readers disagree on which counts": lambda file: traits(file)[0],
    "white space before the {: refused here, as the text of the format demands": lambda file: file[8:9] in b" \t\r\n",
    "more than eight dimensions: refused here": lambda file: traits(file)[1] > 8,
    "a size of 2^63 or more beside a size of 0: refused here": lambda file: traits(file)[2] >= 1 << 63,
}


def exception_of(file):
    return next((name for name, tells in EXCEPTIONS.items() if tells(file)), None)


def write_goldens(seed):
    rng = random.Random(seed)
    out = bytearray()
    for _ in range(400):
        file = mutant(rng)
        if exception_of(file) is None:
            out += struct.pack("<IB", len(file), accepts(file)) + file
    GOLDENS.parent.mkdir(parents=True, exist_ok=True)
    GOLDENS.write_bytes(bytes(out))
    print(f"{GOLDENS.name}: {len(out)} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--verdicts", help="the program safetensors_verdicts")
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--goldens", action="store_true")
    args = parser.parse_args()
    if args.goldens:
        return write_goldens(args.seed)
    rng = random.Random(args.seed)
    files = [mutant(rng) for _ in range(args.mutants)]
    with tempfile.NamedTemporaryFile() as candidates:
        for file in files:
            candidates.write(struct.pack("<I", len(file)) + file)
        candidates.flush()
        ours = subprocess.run([args.verdicts, candidates.name], capture_output=True, text=True, check=True).stdout.strip()
    if len(ours) != len(files):
        sys.exit(f"{len(ours)} verdicts for {len(files)} files")
    accepted, excused, wrong = 0, collections.Counter(), 0
    for file, verdict in zip(files, ours):
        theirs = accepts(file)
        accepted += theirs
        if theirs == (verdict == "1"):
            continue
        if theirs and (name := exception_of(file)):
            excused[name] += 1
            continue
        wrong += 1
        if wrong <= 10:
            print(f"{'refused' if theirs else 'accepted'} here, not by the package: {file[:300]!r}")
    for name, count in excused.items():
        print(f"{count} listed: {name}")
    print(f"{len(files)} files, {accepted} accepted by safetensors {safetensors.__version__}: {wrong} other differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
