#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not know (docs/architecture.md) and draws its floors.

    tools/check_floors.py [--root DIR] [--commands compile_commands.json] [--graph FILE.svg|FILE.dot] [--self-test]

Fails on: an include that points upwards or between formats and kernels or state and text; a room (a folder inside a
floor) that sees what BLIND keeps from it; a cycle of includes, or of folders; an include without its folder; a public header that is one too many, uses a third-party type, or a header that does not compile alone; a
file above 500 lines; printing, exiting, reading the environment, thread_local or std::regex outside src/cli; a compile
command without -ffp-contract=off or with fast maths; a home path or a package index address in any file.
Python standard library only.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import floors_picture

# What each floor may include. The lists are those of kvtide_floor() in CMakeLists.txt, with everything below.
BELOW = {
    "base": set(),
    "tensor": {"base"},
    "formats": {"tensor", "base"},
    "kernels": {"tensor", "base"},
    "state": {"kernels", "tensor", "base"},
    "text": {"base"},
    "model": {"state", "text", "formats", "kernels", "tensor", "base"},
    "engine": {"model", "state", "text", "formats", "kernels", "tensor", "base"},
    "serve": {"engine", "model", "state", "text", "formats", "kernels", "tensor", "base"},
    "shards": {"engine", "model", "state", "text", "formats", "kernels", "tensor", "base"},
    "eval": {"engine", "model", "state", "text", "formats", "kernels", "tensor", "base"},
    "coreml": {"shards", "engine", "model", "state", "text", "formats", "kernels", "tensor", "base"},
    "validate": {"coreml", "shards", "eval", "engine", "model", "state", "text", "formats", "kernels", "tensor", "base"},
    "capi": {"engine", "model", "state", "text", "formats", "kernels", "tensor", "base"},
    "cli": {"serve", "validate", "coreml", "shards", "eval", "engine", "model", "state", "text", "formats", "kernels", "tensor", "base"},
}
# What rooms of a floor may not see although it is no higher: floors, or other rooms. Parsing a command line must not
# measure, and what is shown does not depend on what was asked.
BLIND = {
    "cli/arguments": {"cli/commands", "cli/output", "cli/optional", "eval", "serve", "validate"},
    "cli/output": {"cli/commands", "cli/arguments"},
    # What the small program is made of.
    "cli/commands": {"cli/optional", "serve", "coreml", "validate", "shards"},
    # Reading and running a program know no model of ours; writing one does. Reading takes UTF-8 from text.
    "coreml/program": {"coreml/run", "coreml/lint", "coreml/write", "shards", "engine", "model", "state", "kernels"},
    "coreml/run": {"coreml/lint", "coreml/write", "shards", "engine", "model", "text"},
    "coreml/lint": {"coreml/write", "shards", "engine", "model", "text"},
    # Requests as values know no model, and work on models knows no request.
    "serve/http": {"serve/work", "serve/routes", "engine", "model", "state"},
    "serve/work": {"serve/http", "serve/routes"},
}
# Floors of public headers that no src/<floor>/<name>.cpp or .h gives away, or that one would give away wrongly.
PUBLIC_FLOORS = {
    "types.h": "base",
    "transition.h": "state",
    "state.h": "state",
    "shard.h": "shards",
    "named_state.h": "state",
    "procedural.h": "state",
    "heads.h": "model",
    "tokenizer.h": "text",
    "chat.h": "text",
    "session.h": "engine",
    "validate.h": "validate",
    "coreml.h": "coreml",
    "server.h": "serve",
    "kvtide.h": "capi",
}
MOST_PUBLIC_HEADERS = 19  # for C++; the one for C is an interface of its own
C_HEADER = "kvtide.h"
LONG, TOO_LONG = 300, 500  # lines

THIRD_PARTY = re.compile(r"^(nlohmann|CLI|gtest|gmock|nanobind|pybind11)/")
FORBIDDEN = [
    (re.compile(r"(?<![\w.>])(?:std::|::)?(?:v?f?printf|f?puts|putchar|perror)\s*\("), "prints"),
    (re.compile(r"\bstd::(?:cout|cerr|clog)\b|#\s*include\s*<(?:iostream|print)>"), "prints"),
    (re.compile(r"(?<![\w.>])(?:std::|::)?(?:_?exit|_Exit|quick_exit|abort|terminate)\s*\("), "ends the process"),
    (re.compile(r"\b(?:secure_)?(?:get|set|put)env\s*\(|\benviron\b"), "uses the environment"),
    (re.compile(r"(?<![\w.>])(?:std::|::)?signal\s*\(|\bsigaction\b"), "handles signals"),
    (re.compile(r"\bthread_local\b"), "has a thread_local"),
    (re.compile(r"\bstd::w?regex\b|#\s*include\s*<regex>"), "uses std::regex"),
]
FAST_MATHS = re.compile(
    r"-f(?:fast-math|unsafe-math-optimizations|associative-math|reciprocal-math|finite-math-only)|-Ofast\b"
    r"|-ffp-contract=(?:fast|on)|float_control|pragma\s+(?:GCC\s+optimize|STDC\s+FP_CONTRACT\s+ON|clang\s+fp)"
)
PRIVATE_PLACES = re.compile(r"/(?:home|Users)/[\w.-]+/|(?<![\w}./$])/roo[t]/|--(?:extra-)?index-ur[l]\b")
TEXT_FILES = {".cpp", ".h", ".inl", ".py", ".sh", ".md", ".txt", ".cmake", ".json", ".toml", ".yml", ".yaml", ""}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)


@dataclass
class Report:
    """What was found. Problems fail the check, notes do not."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    edges: Counter = field(default_factory=Counter)  # (floor, floor below) -> number of includes
    lines: Counter = field(default_factory=Counter)  # floor -> lines
    files: Counter = field(default_factory=Counter)  # floor -> files


def without_comments(code: str, keep_strings: bool = False) -> str:
    """The code with comments, and the insides of literals, blanked out; line numbers stay."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'",
        re.S,
    )

    def blank(match: re.Match) -> str:
        text = match.group(0)
        if text.startswith("/") or not keep_strings:
            return " " + "\n" * text.count("\n")
        return text

    return token.sub(blank, code)


def sources(root: Path, *folders: str) -> list[Path]:
    found = []
    for folder in folders:
        found += [p for p in (root / folder).rglob("*") if p.suffix in (".h", ".inl", ".cpp")]
    return sorted(found)


class House:
    """The tree under one root and the checks on it; each check adds to the report."""

    def __init__(self, root: Path, floors: dict[str, set[str]] = BELOW):
        self.root = root
        self.below = floors
        self.report = Report()
        self.code = sources(root, "src", "include")

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def problem(self, path: Path, line: int, text: str) -> None:
        self.report.problems.append(f"{self.name(path)}:{line}: {text}" if line else f"{self.name(path)}: {text}")

    def floor_of(self, path: Path) -> str | None:
        parts = path.relative_to(self.root).parts
        if parts[0] == "src":
            return parts[1] if len(parts) > 2 and parts[1] in self.below else None
        if parts[0] == "include":
            if parts[-1] in PUBLIC_FLOORS:
                return PUBLIC_FLOORS[parts[-1]]
            stem = Path(parts[-1]).stem
            owned = [p for s in (".cpp", ".h") for p in (self.root / "src").glob(f"*/**/{stem}{s}")]
            owners = {p.relative_to(self.root).parts[1] for p in owned}
            return owners.pop() if len(owners) == 1 else None
        return None

    def check_includes(self) -> None:
        graph: dict[Path, list[Path]] = {}
        for path in self.code:
            floor = self.floor_of(path)
            if floor is None:
                where = "PUBLIC_FLOORS in tools/check_floors.py" if self.name(path).startswith("include") else "src/<floor>/"
                self.problem(path, 0, f"belongs to no floor; name it in {where}")
                continue
            text = path.read_text(encoding="utf-8")
            self.report.files[floor] += 1
            self.report.lines[floor] += text.count("\n")
            graph[path] = []
            code = without_comments(text, keep_strings=True)
            for match in INCLUDE.finditer(code):
                line = code.count("\n", 0, match.start(1) if match.group(1) else match.start(2)) + 1
                if match.group(1):
                    self.check_own_include(path, floor, match.group(1), line, graph)
                elif THIRD_PARTY.match(match.group(2)):
                    self.check_third_party(path, match.group(2), line)
        self.check_cycles(graph)
        self.check_folder_cycles(graph)

    def check_own_include(self, path: Path, floor: str, target: str, line: int, graph: dict) -> None:
        place = self.root / ("include" if target.startswith("kvtide/") else "src") / target
        if "/" not in target or not place.is_file():
            self.problem(path, line, f'#include "{target}": write it from src/ or include/, as "floor/file.h"')
            return
        graph[path].append(place)
        other = self.floor_of(place)
        self.check_rooms(path, target, line, other)
        if other is None or other == floor:
            return
        self.report.edges[floor, other] += 1
        if other not in self.below[floor]:
            may = ", ".join(f for f in self.below if f in self.below[floor]) or "no other floor"
            self.problem(path, line, f'#include "{target}": {floor} may not see {other}; it may see {may}')

    def check_rooms(self, path: Path, target: str, line: int, other: str | None) -> None:
        room = "/".join(path.relative_to(self.root).parts[1:3])
        for hidden in BLIND.get(room, ()):
            if other == hidden or target.startswith(hidden + "/"):
                self.problem(path, line, f'#include "{target}": {room} may not see {hidden}')

    def check_third_party(self, path: Path, target: str, line: int) -> None:
        if path.suffix != ".cpp":
            self.problem(path, line, f"<{target}>: third-party types stay inside a .cpp")

    def check_bindings(self) -> None:
        """The Python module is one user of the library among others: it sees the public headers and its own files."""
        for path in sources(self.root, "python"):
            code = without_comments(path.read_text(encoding="utf-8"), keep_strings=True)
            for match in INCLUDE.finditer(code):
                target = match.group(1)
                if target and not target.startswith("kvtide/") and not (path.parent / target).is_file():
                    line = code.count("\n", 0, match.start(1)) + 1
                    self.problem(path, line, f'#include "{target}": python/ sees include/kvtide/ and its own files only')

    def check_cycles(self, graph: dict[Path, list[Path]]) -> None:
        done: set[Path] = set()
        for start in graph:
            trail: list[Path] = []
            pending = [(start, iter(graph.get(start, ())))] if start not in done else []
            if pending:
                trail.append(start)
            while pending:
                node, rest = pending[-1]
                following = next(rest, None)
                if following is None:
                    pending.pop()
                    done.add(trail.pop())
                elif following in trail:
                    names = [self.name(p) for p in trail[trail.index(following):]] + [self.name(following)]
                    self.report.problems.append("cycle of includes: " + " -> ".join(names))
                elif following not in done:
                    trail.append(following)
                    pending.append((following, iter(graph.get(following, ()))))

    def check_folder_cycles(self, graph: dict[Path, list[Path]]) -> None:
        """Folders of src/: who includes whom must have a bottom. One include of each step of a cycle is named."""
        sees: dict[str, dict[str, str]] = {}
        for path, targets in graph.items():
            for target in targets:
                user, used = self.name(path.parent), self.name(target.parent)
                if user != used and user.startswith("src/") and used.startswith("src/"):
                    sees.setdefault(user, {}).setdefault(used, f"{self.name(path)} includes {self.name(target)}")
        while True:  # What sees nothing that is left is a bottom.
            bottoms = [folder for folder, below in sees.items() if not any(used in sees for used in below)]
            if not bottoms:
                break
            for folder in bottoms:
                del sees[folder]
        trail: list[str] = []
        folder = next(iter(sees), None)
        while folder is not None and folder not in trail:  # Everybody left sees somebody left.
            trail.append(folder)
            folder = next(used for used in sees[folder] if used in sees)
        if folder is not None:
            steps = [*trail[trail.index(folder):], folder]
            why = "; ".join(sees[user][used] for user, used in zip(steps, steps[1:]))
            self.report.problems.append(f"cycle of folders: {' -> '.join(steps)} ({why})")

    def check_words(self) -> None:
        for path in self.code:
            code = without_comments(path.read_text(encoding="utf-8"))
            for match in FAST_MATHS.finditer(code):
                self.problem(path, code.count("\n", 0, match.start()) + 1, f"fast maths: {match.group(0)}")
            if self.floor_of(path) == "cli":
                continue
            for pattern, what in FORBIDDEN:
                for match in pattern.finditer(code):
                    line = code.count("\n", 0, match.start()) + 1
                    self.problem(path, line, f"{what} ({match.group(0).strip()}): only src/cli may")

    def check_lengths(self) -> None:
        for path in self.code:
            text = path.read_text(encoding="utf-8")
            if "enerated by tools/" in text[:400]:
                continue  # a table, not something to read
            lines = text.count("\n")
            if lines > TOO_LONG:
                self.problem(path, 0, f"{lines} lines; split it by concept (at most {TOO_LONG}, better {LONG})")
            elif lines > LONG:
                self.report.notes.append(f"{self.name(path)}: {lines} lines, more than {LONG}")
            if path.suffix == ".h" and not text.startswith((f"// {path.name}: ", f"/* {path.name}: ")):
                self.problem(path, 1, f'a header opens with what it is: "// {path.name}: ..."')

    def check_public_headers(self, compiler: str) -> None:
        public = [p for p in self.code if self.name(p).startswith("include/")]
        if len([p for p in public if p.name != C_HEADER]) > MOST_PUBLIC_HEADERS:
            self.report.problems.append(f"include/kvtide: {len(public)} headers, at most {MOST_PUBLIC_HEADERS}")
        for path in public:
            for match in INCLUDE.finditer(path.read_text(encoding="utf-8")):
                own, other = match.groups()
                if (own and not own.startswith("kvtide/")) or (other and not re.fullmatch(r"[a-z_]+" if path.name != C_HEADER else r"std(bool|def|int)\.h", other)):
                    self.problem(path, 0, f"includes {own or other}; a public header uses kvtide/ and the standard")
        # A header that some source file includes before all else is compiled alone there: clang++ builds every file by itself.
        first = {
            match.group(1)
            for path in self.code
            if path.suffix == ".cpp" and (match := INCLUDE.search(path.read_text(encoding="utf-8")))
        }
        headers = [
            p for p in self.code
            if p.suffix == ".h" and not re.search(r"\.(avx|neon)", p.name) and self.name(p).split("/", 1)[1] not in first
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the compiler's processes do the work
            for path, error in zip(headers, pool.map(lambda header: self.error_alone(compiler, header), headers)):
                if error:
                    self.problem(path, 0, f"does not compile alone: {error}")

    def error_alone(self, compiler: str, header: Path) -> str:
        """The first error of a file that includes nothing but `header`; empty when there is none."""
        result = subprocess.run(
            [compiler, "-std=c++20", "-march=x86-64-v2", "-Wall", "-Wextra", "-fsyntax-only", "-x", "c++",
             "-I", str(self.root / "include"), "-I", str(self.root / "src"), "-include", str(header), "/dev/null"],
            capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return ""
        return next((x for x in result.stderr.splitlines() if "error" in x), result.stderr[:200])

    def check_build_files(self) -> None:
        for path in [*self.root.rglob("CMakeLists.txt"), *self.root.glob("cmake/*"), *self.root.glob("CMakePresets.json"),
                     *self.root.glob("Makefile")]:
            if "build" in path.relative_to(self.root).parts or not path.is_file():
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if match := FAST_MATHS.search(line):
                    self.problem(path, number, f"fast maths: {match.group(0)}")

    def check_commands(self, commands: Path) -> None:
        entries = json.loads(commands.read_text(encoding="utf-8"))
        if not entries:
            self.report.problems.append(f"{commands}: holds no compile command")
        for entry in entries:
            command = entry.get("command") or " ".join(entry["arguments"])
            if "-ffp-contract=off" not in command:
                self.report.problems.append(f"{entry['file']}: compiled without -ffp-contract=off")
            if match := FAST_MATHS.search(command):
                self.report.problems.append(f"{entry['file']}: compiled with {match.group(0)}")

    def check_private_places(self, files: list[Path]) -> None:
        for path in files:
            if path.suffix not in TEXT_FILES or path.is_symlink() or not path.is_file():
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            for match in PRIVATE_PLACES.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                self.problem(path, line, f"'{match.group(0)}' means something on one machine only")


def tracked_files(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True)
    return [root / name for name in listed.stdout.split("\0") if name]


def main() -> int:
    parser = argparse.ArgumentParser(description="checks the rules of the house")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--commands", type=Path, help="the compile_commands.json of a build")
    parser.add_argument("--compiler", default="g++", help="compiles each header alone")
    parser.add_argument("--graph", type=Path, help="write the floors as FILE.svg or FILE.dot")
    parser.add_argument("--self-test", action="store_true", help="show that each rule catches what it should")
    options = parser.parse_args()
    if options.self_test:
        import check_floors_test
        return check_floors_test.main()
    house = House(options.root.resolve())
    house.check_includes()
    house.check_bindings()
    house.check_words()
    house.check_lengths()
    house.check_public_headers(options.compiler)
    house.check_build_files()
    house.check_private_places(tracked_files(house.root))
    if options.commands:
        house.check_commands(options.commands)
    report = house.report
    if options.graph:
        options.graph.parent.mkdir(parents=True, exist_ok=True)
        draw = floors_picture.dot if options.graph.suffix == ".dot" else floors_picture.svg
        options.graph.write_text(draw(house.below, report.edges, report.files, report.lines), encoding="utf-8")
    for note in report.notes:
        print(f"note: {note}")
    for problem in report.problems:
        print(problem)
    print(f"floors: {sum(report.files.values())} files, {sum(report.lines.values())} lines, "
          f"{len(report.problems)} problem(s), {len(report.notes)} note(s)")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
