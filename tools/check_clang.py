#!/usr/bin/env python3
"""Has clang++ read every file of src/, with warnings as errors where the build folder is configured so.

    tools/check_clang.py BUILD      a build folder of the preset fuzz; make test-sanitized compiles most floors there

What BUILD holds an object of, newer than the source and all that it includes, was compiled. The others are only parsed,
which finds the same errors in 40% of the time. Files that are compiled together are read together: a header that one of
them forgot shows in a build of the preset clang.
"""

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def compiled(build: Path) -> set[str]:
    """The objects, as BUILD names them, that are newer than everything they were made of."""
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True).stdout
    found = set()
    for entry in text.split("\n\n"):
        head, *files = entry.splitlines() or [""]
        name = head.split(": #deps")[0]
        if (build / name).exists() and files:
            made = (build / name).stat().st_mtime
            if all((build / file.strip()).exists() and (build / file.strip()).stat().st_mtime <= made for file in files):
                found.add(name)
    return found


def parsed(entry: dict) -> tuple[str, bool]:
    """What clang++ says of one file, and whether it refuses it."""
    command = shlex.split(entry["command"])
    at = command.index("-o")
    del command[at : at + 2]
    command[command.index("-c")] = "-fsyntax-only"
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return done.stderr, done.returncode != 0


def is_of_floors(entry: dict, build: Path) -> bool:
    """Whether it compiles a file of src/, or several of them together."""
    file = Path(entry["file"])
    together = file.parent.name == "Unity" and file.parent.parent.name.startswith("kvtide_")
    return file.is_relative_to(ROOT / "src") or together and file.is_relative_to(build)


def main(build: Path) -> int:
    done = compiled(build)
    entries = json.loads((build / "compile_commands.json").read_text())
    floors = [e for e in entries if is_of_floors(e, build)]
    left = [e for e in floors if shlex.split(e["command"])[-3] not in done]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(parsed, left))
    print("".join(text for text, _ in found), end="", file=sys.stderr)
    refused = sum(wrong for _, wrong in found)
    print(f"clang++: {len(floors)} compilations of src/, {len(floors) - len(left)} compiled, {len(left)} parsed, {refused} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve()))
