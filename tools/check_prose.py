#!/usr/bin/env python3
"""Checks that the documentation stays plain: short sentences, and a README that a stranger reads to its end.

    tools/check_prose.py            checks README.md and docs/*.md
    tools/check_prose.py -v FILE... lists every sentence that is too long

A sentence ends with . ! or ? before a space, with a blank line, or with a list item. Tables, code, pictures and formulas in
backticks are not prose: a piece of code, or a list of such pieces, counts as one word. A sentence with eight pieces of code or
more is a list of keys or flags and is not counted.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEAN_WORDS = 18
MOST_WORDS = 40
README_LINES = 130
README_NUMBERS = 150
LIST_PIECES = 8
LIST = re.compile(r"CODE(?:(?:,| and| or|, and|, or) CODE)+")
HEADING = re.compile(r"^#+ ")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
END = re.compile(r"(?<=[.!?])(?:[*)\"'”]*)\s+(?=[\"'(*`\[“]*[A-Z0-9`*\[])")


def paragraphs(text: str) -> list[str]:
    """The prose of a page: without code, tables, pictures and headings."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.M | re.S)
    found: list[list[str]] = [[]]
    blank_before = True
    for line in text.splitlines():
        stripped = line.strip()
        code = line.startswith("    ") and blank_before
        if not stripped or HEADING.match(line) or stripped.startswith(("|", "![", "<!--")) or code:
            found.append([])
            blank_before = blank_before if code else True
            continue
        if ITEM.match(line):
            found.append([])
            stripped = ITEM.sub("", line).strip()
        blank_before = False
        found[-1].append(stripped)
    return [" ".join(lines) for lines in found if lines]


def sentences(text: str) -> list[str]:
    found = []
    for paragraph in paragraphs(text):
        plain = re.sub(r"`[^`]*`", "CODE", paragraph)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        plain = re.sub(r"\b(e\.g|i\.e|vs)\.", r"\1", plain)
        split = [sentence for sentence in END.split(plain) if re.search(r"[A-Za-z]", sentence)]
        found += [LIST.sub("CODE", sentence) for sentence in split if sentence.count("CODE") < LIST_PIECES]
    return found


def words(sentence: str) -> int:
    return len(re.findall(r"[^\s]*[A-Za-z0-9][^\s]*", sentence))


def complaints(path: Path, verbose: bool) -> list[str]:
    text = path.read_text("utf-8")
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    counted = [(words(sentence), sentence) for sentence in sentences(text)]
    found = []
    mean = sum(count for count, _ in counted) / max(1, len(counted))
    if verbose:
        print(f"{name}: {len(counted)} sentences of {mean:.1f} words on average")
    if mean > MEAN_WORDS:
        found.append(f"{name}: sentences have {mean:.1f} words on average; at most {MEAN_WORDS}")
    for count, sentence in counted:
        if count > MOST_WORDS:
            found.append(f"{name}: a sentence of {count} words; at most {MOST_WORDS}: {sentence if verbose else sentence[:60] + '...'}")
    if path.name == "README.md":
        lines = text.count("\n")
        numbers = len(re.findall(r"\d[\d,.]*", text))
        if lines > README_LINES:
            found.append(f"{name}: {lines} lines; at most {README_LINES}")
        if numbers > README_NUMBERS:
            found.append(f"{name}: {numbers} numbers; at most {README_NUMBERS}")
    return found


def main() -> int:
    arguments = sys.argv[1:]
    verbose = "-v" in arguments
    files = [Path(name).resolve() for name in arguments if name != "-v"]
    files = files or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [line for file in files for line in complaints(file, verbose)]
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"prose: {len(files)} pages in sentences of at most {MOST_WORDS} words, {MEAN_WORDS} on average")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
