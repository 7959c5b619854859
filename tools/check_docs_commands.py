#!/usr/bin/env python3
"""Checks what the documentation tells people to type.

    tools/check_docs_commands.py --kvtide PROGRAM                        every flag and command that a page names exists
    tools/check_docs_commands.py --kvtide PROGRAM --run --models DIR     the commands of README and tutorial work, too
                                 [--python PYTHON] [--novel FILE]        PYTHON has the package: Python examples run as well

Runs fenced blocks of `sh` and `python`, in order, in a scratch folder. The novel there is the beginning of the real one, and
DIR has the models of `kvtide fetch`. A block behind <!-- not run: REASON --> is left out; ```sh exit=N expects the status N.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = ("README.md", "docs/tutorial.md")
NOVEL_BYTES = 45_000  # enough to be longer than the context of SmolLM2
SECONDS = 600  # for one block
BLOCK = re.compile(r"^(?P<skip><!-- not run: .*? -->\n)?```(?P<kind>sh|python)(?: exit=(?P<status>\d+))?\n(?P<text>.*?)^```", re.M | re.S)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# Flags of other people's programs, which pages name.
FOREIGN = {"--build", "--install", "--prefix", "--component", "--target", "--preset", "--gtest", "--test-dir", "--version",
           "--help"}  # fmt: skip


class CheckError(Exception):
    """What is wrong, for the user."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    kind: str
    text: str
    status: int
    skipped: bool


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["kind"], match["text"], int(match["status"] or 0), bool(match["skip"]))
        for match in BLOCK.finditer(text)
    ]


def output(command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return answer.stdout + answer.stderr


def known_flags(kvtide: str) -> tuple[set[str], set[str]]:
    """The commands of the program, and all flags of it and of the tools beside it."""
    commands = {name for name in re.findall(r"^  (?:kvtide )?([a-z]+)\b", output([kvtide, "--help"]), re.M) if name != "kvtide"}
    if "run" not in commands:
        raise CheckError(f"{kvtide} --help lists no command `run`")
    flags = set(FOREIGN)
    for command in sorted(commands):
        flags |= set(FLAG.findall(output([kvtide, command, "--help"])))
    sources = [*(ROOT / "tools").rglob("*.py"), *(ROOT / "bench").glob("*.py"), *(ROOT / "tools").glob("*.sh")]
    sources += [*(ROOT / "tests" / "cluster").glob("*.py"), *(ROOT / "python" / "kvtide" / "cluster").glob("*.py")]
    for source in sources:
        flags |= set(FLAG.findall(source.read_text("utf-8")))
    for source in (ROOT / "src" / "cli" / "arguments").glob("*.cpp"):  # other names of a flag, which no help lists
        flags |= set(re.findall(r'"(--[a-z][a-z0-9-]*)"', source.read_text("utf-8")))
    return commands, flags


def names_that_do_not_exist(kvtide: str) -> list[str]:
    commands, flags = known_flags(kvtide)
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        fenced = False
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            place = f"{page.relative_to(ROOT)}:{number}"
            fenced ^= line.startswith("```")
            typed = re.findall(r"^ *kvtide ([a-z]+)\b", line) if fenced or line.startswith("    ") else []
            typed += re.findall(r"`kvtide ([a-z]+)\b", line)
            found += [f"{place}: there is no flag {flag}" for flag in FLAG.findall(line) if flag not in flags]
            found += [f"{place}: there is no command `kvtide {name}`" for name in typed if name not in commands]
    return found


class Runner:
    """Runs blocks in a scratch folder that looks to them like a fresh clone with the program on the PATH."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.python = arguments.python
        programs = folder / "build"
        programs.mkdir()
        (programs / "kvtide").symlink_to(Path(arguments.kvtide).resolve())
        (folder / "tools").symlink_to(ROOT / "tools")
        models = Path(arguments.models).resolve()
        for beginning in ("smollm2", "gemma-3"):
            if not list(models.glob(f"{beginning}*.gguf")):
                raise CheckError(f"{models} has no {beginning}*.gguf; tools/fetch_model.py all {models} gets it")
        (programs / "models").symlink_to(models)
        novel = Path(arguments.novel).read_text("utf-8")
        (folder / "persuasion.txt").write_text(novel[:NOVEL_BYTES], "utf-8")
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KVTIDE_MODELS": str(models)}

    def run(self, block: Block) -> None:
        command = [str(Path(self.python).absolute()), "-c", block.text] if block.kind == "python" else ["bash", "-e", "-c", block.text]
        start = time.monotonic()
        try:
            answer = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise CheckError(f"{block.page}:{block.line}: took more than {SECONDS} s") from error
        if answer.returncode != block.status:
            said = (answer.stderr or answer.stdout).decode(errors="replace").strip()[-800:]
            raise CheckError(f"{block.page}:{block.line}: status {answer.returncode} where {block.status} was expected\n{block.text}{said}")
        print(f"  {block.page}:{block.line} ({time.monotonic() - start:.1f} s)", flush=True)


def run_pages(arguments: argparse.Namespace) -> str:
    counts = {"sh": 0, "python": 0}
    left_out = 0
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(arguments, Path(scratch))
        for page in RUN:
            found = blocks(page)
            if not found:
                raise CheckError(f"{page} has no block to run")
            for block in found:
                if block.skipped or (block.kind == "python" and not arguments.python):
                    left_out += 1
                    continue
                runner.run(block)
                counts[block.kind] += 1
    return f"{counts['sh']} blocks of commands and {counts['python']} of Python ran, {left_out} were left out"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--models", default="build/models")
    parser.add_argument("--novel", default="build/text/persuasion.txt")
    parser.add_argument("--python", default="")
    arguments = parser.parse_args()
    try:
        wrong = names_that_do_not_exist(arguments.kvtide)
        if wrong:
            raise CheckError("\n".join(wrong))
        print("documentation: every flag and command that a page names exists")
        if arguments.run:
            print(f"documentation: {run_pages(arguments)}")
    except (CheckError, OSError) as error:
        print(f"check_docs_commands.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
