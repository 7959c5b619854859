#!/usr/bin/env python3
"""Writes a novel as plain text, a line per paragraph.

    tools/fetch_novel.py persuasion|northangerabbey|emma|mansfieldpark|prideprejudice|sensesensibility FILE

The novels of Jane Austen come with Debian's package r-cran-janeaustenr, 1.6 MB; they are in the public domain. The package
is downloaded and unpacked below build/, not installed, because its readers are written in R. Does nothing when FILE is
there; FILE appears only when it is complete. Needs apt-get and dpkg-deb.
"""

import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

PACKAGE = "r-cran-janeaustenr"
NOVELS = {  # least bytes that count as complete
    "persuasion": 450_000,
    "northangerabbey": 420_000,
    "emma": 850_000,
    "mansfieldpark": 850_000,
    "prideprejudice": 650_000,
    "sensesensibility": 650_000,
}
OBJECTS = "./usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"


class FetchError(Exception):
    """What could not be had, in a sentence for the user."""


def run(command: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL)


def download(folder: Path) -> Path:
    """The package's file, downloaded into `folder`. Package lists are fetched when the first try fails for want of them."""
    apt = ["apt-get", "-q", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"]
    answer = run([*apt, "download", PACKAGE], folder)
    if answer.returncode != 0:
        run([*([] if os.geteuid() == 0 else ["sudo", "-n"]), *apt, "update"])
        answer = run([*apt, "download", PACKAGE], folder)
    found = sorted(folder.glob(f"{PACKAGE}_*.deb"))
    if answer.returncode != 0 or not found:
        raise FetchError(f"apt-get could not download the package {PACKAGE}: {answer.stderr.decode(errors='replace').strip()}")
    return found[0]


def objects(package: Path) -> bytes:
    """The package's data file, out of its archive."""
    tar = run(["dpkg-deb", "--fsys-tarfile", str(package)])
    if tar.returncode != 0:
        raise FetchError(f"dpkg-deb could not read {package.name}")
    member = subprocess.run(["tar", "-xO", "-f", "-", OBJECTS], input=tar.stdout, capture_output=True)
    if member.returncode != 0:
        raise FetchError(f"{package.name} has no {OBJECTS}")
    return member.stdout


def streams(data: bytes) -> list[bytes]:
    """The objects of the file: each four bytes of length and a zlib stream."""
    found = []
    while len(data) > 4:
        part = zlib.decompressobj()
        found.append(part.decompress(data[4:]))
        data = part.unused_data
    return found


def lines(stream: bytes) -> list[str]:
    """The strings of R's serialised character vector, in order: a flag word, a length, the bytes."""
    found, at = [], stream.find(b"\0\0\0\x10") + 8
    while at + 8 <= len(stream):
        kind, size = struct.unpack_from(">ii", stream, at)
        if kind & 0xFF != 9:
            break
        size = max(size, 0)
        found.append(stream[at + 8 : at + 8 + size].decode("utf-8"))
        at += 8 + size
    return found


def novel(name: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        data = objects(download(Path(scratch)))
    order = sorted(NOVELS)  # the package stores them by name
    texts = ["\n".join(lines(stream)) + "\n" for stream in streams(data)]
    long = [text for text in texts if len(text) > min(NOVELS.values())]
    if len(long) != len(order):
        raise FetchError(f"{PACKAGE} holds {len(long)} novels where {len(order)} were expected")
    printed = re.sub(r"\n{3,}", "\n\n", long[order.index(name)])
    text = re.sub(r"(?<=\S) *\n(?=\S)", " ", printed)  # the lines of a paragraph become one
    if len(text) < NOVELS[name]:
        raise FetchError(f"{PACKAGE} gave {len(text)} bytes for {name}; at least {NOVELS[name]} were expected")
    return text


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in NOVELS:
        print(f"usage: tools/fetch_novel.py {'|'.join(NOVELS)} FILE", file=sys.stderr)
        return 2
    file = Path(sys.argv[2])
    if file.exists() and file.stat().st_size > 0:
        return 0
    try:
        text = novel(sys.argv[1])
    except (FetchError, OSError) as error:
        print(f"fetch_novel.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fetch_novel.py: stopped; nothing was left half done", file=sys.stderr)
        return 130
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
