"""Runs the program as a user would, on the tiny models of tests/goldens. The program's path comes from KVTIDE."""

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parent.parent / "goldens" / "models"
LLAMA = MODELS / "llama-mha-untied.gguf"  # 64 tokens of lower-case letters, trained for 256 tokens
TEXT = MODELS / "tiny.txt"  # 80 tokens
PROGRAM = os.environ.get("KVTIDE", "build/kvtide")
TIMEOUT_S = 120
CACHE = tempfile.mkdtemp(prefix="kvtide-cache-")  # instead of the user's own
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)


@dataclass
class Outcome:
    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.out)


def environment(**more: str) -> dict:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    return kept | {"LC_ALL": "C.UTF-8", "XDG_CACHE_HOME": CACHE} | more


def kvtide(*words, stdin: bytes = b"", **options) -> Outcome:
    done = subprocess.run([PROGRAM, *map(str, words)], input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False,
                          env=environment(), **options)  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr.decode("utf-8"))


def start(*words, **options) -> subprocess.Popen:
    """For a test that talks to the running program; stdout and stderr are pipes, unbuffered: what a buffer had read ahead
    would be lost to communicate()."""
    return subprocess.Popen([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0,
                            stderr=subprocess.PIPE, env=environment(), **options)  # fmt: skip


def read_until(process: subprocess.Popen, pipe, found, awaited: str) -> bytes:
    """What the program writes until ``found(all of it)``: a line, or one more byte at a time. Ends after TIMEOUT_S."""
    received, end = b"", time.monotonic() + TIMEOUT_S
    while not found(received):
        if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            process.kill()
            raise AssertionError(f"waited {TIMEOUT_S} s for {awaited}; came: {received!r}")
        piece = pipe.read(1)
        if not piece:
            process.wait(TIMEOUT_S)
            raise AssertionError(f"the program ended before {awaited}; came: {received!r}")
        received += piece
    return received


def wait_for_line(process: subprocess.Popen, word: bytes) -> None:
    """Until a whole line on stderr holds the word."""
    read_until(process, process.stderr, lambda text: text.endswith(b"\n") and word in text, f"a line with {word!r}")


def interrupt(process: subprocess.Popen) -> Outcome:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Outcome(process.returncode, out, err.decode("utf-8"))


class ProgramTest(unittest.TestCase):
    """A folder for each test, and what every refusal has in common."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kvtide-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def assert_refused(self, outcome: Outcome, status: int, *parts: str) -> None:
        """One line on stderr that holds all parts, nothing on stdout, the status that docs/cli.md promises."""
        self.assertEqual(outcome.status, status, outcome.err)
        self.assertEqual(outcome.out, b"")
        lines = outcome.err.splitlines()
        self.assertEqual(len(lines), 1, outcome.err)
        self.assertTrue(lines[0].startswith("kvtide: "), outcome.err)
        for part in parts:
            self.assertIn(part, lines[0])

    def assert_fine(self, outcome: Outcome) -> Outcome:
        self.assertEqual(outcome.status, 0, outcome.err)
        return outcome
