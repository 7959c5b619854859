#!/usr/bin/env python3
"""Counts instructions of the inner loops of the AArch64 kernels: what one multiply-add costs, where no such machine is
at hand to measure it.

    tools/count_instructions.py BUILD      a build folder of the preset aarch64

Prints a table in Markdown. A loop is what lies between a backward jump and its target, with no other loop inside; of a
function's loops it is the one with the most products. Multiply-adds are those of the matrix: what scales the sums counts
as other work.
"""

import argparse
import pathlib
import re
import subprocess
import sys
from collections import Counter

# Multiply-adds of one instruction.
INTEGER = {"smmla": 32, "sdot": 16, "smlal": 8, "smlal2": 8, "smull": 8, "smull2": 8}
WORDS = {"smlal": 4, "smlal2": 4, "smull": 4, "smull2": 4}  # of 16-bit numbers
FLOAT = {"fmla": 4}
BF16 = {"bfmlalb": 4, "bfmlalt": 4}
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4K", "Q5K", "Q6K"]


def functions(path):
    """Name to [(address, mnemonic, operands)] of one object."""
    text = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-d", "-C", "--no-show-raw-insn", str(path)], check=True, capture_output=True, text=True
    ).stdout
    found, body = {}, []
    for line in text.splitlines():
        if match := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            body = found.setdefault(match[1], [])
        elif match := re.match(r"\s+([0-9a-f]+):\s+(\S+)\s*(.*)$", line):
            body.append((int(match[1], 16), match[2], match[3]))
    return found


def inner_loops(body):
    """Mnemonics of every innermost loop."""
    place = {address: i for i, (address, _, _) in enumerate(body)}
    loops = []
    for i, (_, name, operands) in enumerate(body):
        target = re.search(r"\b([0-9a-f]+) <", operands)
        if target and (name.startswith("b.") or name in ("b", "cbz", "cbnz", "tbz", "tbnz")):
            begin = place.get(int(target[1], 16))
            if begin is not None and begin <= i:
                loops.append((begin, i + 1))
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return [Counter(name for _, name, _ in body[begin:end]) for begin, end in inner]


def largest(bodies, products, most):
    """The loop with the most multiply-adds, at most `most`, and their number."""
    loops = [loop for body in bodies for loop in inner_loops(body)]
    work = lambda loop: sum(loop[name] * each for name, each in products.items())
    best = max((loop for loop in loops if work(loop) <= most), key=lambda loop: (work(loop), -loop.total()), default=Counter())
    return best, work(best)


def cell(what, bodies, products, most):
    """Instructions per multiply-add (instructions; those that multiply and add)."""
    loop, work = largest(bodies, products, most)
    if work == 0:
        sys.exit(f"count_instructions.py: {what}: no inner loop with {', '.join(products)}")
    return f"{loop.total() / work:.3f} ({loop.total()}; {sum(loop[name] for name in products)})"


def matching(functions_of_file, pattern):
    return [body for name, body in functions_of_file.items() if re.search(pattern, name)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    folder = parser.parse_args().build / "CMakeFiles/kvtide_kernels.dir/src/kernels"
    if not (folder / "matmul.neon.cpp.o").exists():
        sys.exit(f"count_instructions.py: {folder} holds no matmul.neon.cpp.o; run make test-aarch64 first")

    columns = [("neon", 4), ("dotprod", 8), ("i8mm", 8), ("neon", 1), ("dotprod", 1)]  # one row: i8mm as dotprod
    matmul = {table: functions(folder / f"matmul.{table}.cpp.o") for table in ("neon", "dotprod", "i8mm")}
    print("| weights | " + " | ".join(f"{table}, {rows} row{'s' * (rows > 1)}" for table, rows in columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for kind in TYPES:
        cells = []
        for table, rows in columns:
            # 32 elements of sixteen rows of the panel by one, or of four by eight or eight by four. The tile of one row may
            # lie in dot_panel.
            place = rf"\btile<.*::{kind}, {rows}>" if rows > 1 else rf"::{kind}(, 1)?>\("
            cells.append(cell(f"{table}, {kind}", matching(matmul[table], place), INTEGER, 1024 if rows > 1 else 512))
        print(f"| {kind.lower() if '_' in kind else kind.lower().replace('k', '_k')} | {' | '.join(cells)} |")

    rounded = "fold_tile_rounded|score_pairs|mix_pairs"
    plain, bf16 = functions(folder / "attend.neon.cpp.o"), functions(folder / "attend_bf16.neon.cpp.o")
    print("\n| attention | neon | i8mm_bf16 |\n|---|---:|---:|")
    for what, pattern, few, many in (
        ("bf16 pairs", rounded, (FLOAT, 128), (BF16, 192)),
        ("q8_0 rows", "fold_tile_rounded", (WORDS, 128), (WORDS, 192)),
        ("exact scores", r"score_tile|fold_tile\(", (FLOAT, 64), (FLOAT, 64)),
    ):
        cells = [cell(what, matching(of, pattern), *limits) for of, limits in ((plain, few), (bf16, many))]
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
