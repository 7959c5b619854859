#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cpp: the character classes that pre-tokenisers ask for.

The classes are not taken from a Unicode file but probed, code point by code point, from the `tokenizers` package:
its regular expressions (\\p{L}, \\p{N}, \\p{P}, \\s) follow one version of Unicode and its Digits splitter another, and
equal ids need the classes that it uses, not the newest ones.

  python tools/make_unicode_tables.py            # rewrites the file
  python tools/make_unicode_tables.py --check    # exits with 1 when the file is not what would be written
"""
import argparse
import pathlib
import sys

import tokenizers
from tokenizers import Regex, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
PAGES = 0x324  # beyond U+323FF only private, tag and unassigned code points are left
OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "src/text/unicode_tables.cpp"


def members(pattern):
    """The code points that `pattern` matches: splitting with `removed` leaves the others."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    left = {ord(c) for text, _ in splitter.pre_tokenize_str("".join(map(chr, CODE_POINTS))) for c in text}
    return set(CODE_POINTS) - left


def isolated_digits():
    splitter = pre_tokenizers.Digits(individual_digits=True)
    text = "".join("a" + chr(c) for c in CODE_POINTS)
    return {ord(piece) for piece, _ in splitter.pre_tokenize_str(text) if len(piece) == 1 and piece != "a"}


def wrap(numbers, style):
    lines, line = [], "   "
    for number in numbers:
        word = " " + style.format(number) + ","
        if len(line) + len(word) > 110:
            lines.append(line)
            line = "   "
        line += word
    return lines + [line]


def render():
    bits = [(1, members(r"\p{L}")), (2, members(r"\p{N}")), (4, members(r"\p{P}")), (8, members(r"\s")),
            (16, isolated_digits())]
    entries, previous = [], None
    for c in range(0x110000):
        kind = sum(bit for bit, of in bits if c in of)
        if kind != previous:
            entries.append(c << 8 | kind)
            previous = kind
    pages = [max(i for i, entry in enumerate(entries) if entry >> 8 <= page << 8) for page in range(PAGES + 1)]
    lines, page_lines = wrap(entries, "0x{:x}"), wrap(pages, "{}")
    return f"""// unicode_tables.cpp: where the class of code points changes. Written by tools/make_unicode_tables.py; do not edit.
//
// Probed from tokenizers {tokenizers.__version__}. Each entry is (first code point << 8 | class bits of unicode.h) and holds up
// to the next entry; kClassPages[p] is the entry that holds at code point p * 256.
#include "text/unicode.h"

namespace kvtide {{

// clang-format off
const std::uint32_t kClassChanges[kClassChangeCount] = {{
{chr(10).join(lines)}
}};

const std::uint16_t kClassPages[kClassPageCount + 1] = {{
{chr(10).join(page_lines)}
}};
// clang-format on

}}  // namespace kvtide
""", len(entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    text, count = render()
    args = parser.parse_args()
    header = (OUTPUT.parent / "unicode.h").read_text()
    if f"kClassChangeCount = {count};" not in header:
        sys.exit(f"src/text/unicode.h must say kClassChangeCount = {count};")
    if args.check:
        sys.exit(0 if OUTPUT.exists() and OUTPUT.read_text() == text else f"{OUTPUT} is out of date")
    OUTPUT.write_text(text)
    print(f"{OUTPUT}: {count} entries")


if __name__ == "__main__":
    main()
