"""The examples run, and stay short."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvtide import _native  # noqa: F401  needs the extension

FOLDER = Path(__file__).parent.parent.parent / "examples" / "python"


def run(name, *args):
    return subprocess.run(
        [sys.executable, "-W", "error", FOLDER / name, *args], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_examples_have_fewer_than_60_lines(path):
    assert len(path.read_text().splitlines()) < 60


def test_generating(tiny):
    result = run("01_generate.py", tiny, "a tide", "8")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("a tide") and len(result.stdout) > 8
    assert "8 tokens written" in result.stderr and "ended by max_tokens" in result.stderr


def test_generating_without_a_model_says_what_is_missing():
    result = run("01_generate.py", "no-such-model.gguf", "a tide")
    assert result.returncode == 1 and "no-such-model.gguf" in result.stderr and "Traceback" not in result.stderr
    assert "python examples/python/01_generate.py" in run("01_generate.py").stderr


def test_resizing():
    result = run("02_resize.py")
    assert result.returncode == 0, result.stderr
    assert "Cannot compact to 128" in result.stdout and "ctx1024 -> ctx2048: (36, 1, 2048, 256)" in result.stdout
