"""mypy --strict over the package, its stubs, and what users write: typos are refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension

pytest.importorskip("mypy")
HERE = Path(__file__).parent


def mypy(folder, *what):
    environment = {**os.environ, "MYPY_CACHE_DIR": str(folder)}
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--show-error-codes", *what]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


def test_the_package_and_its_stubs_are_typed(tmp_path):
    done = mypy(tmp_path, "-p", "kvtide")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_typo_is_an_error_for_type_checkers_too(tmp_path):
    path = HERE / "typed_use.py"
    refused = {n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# refused")}
    done = mypy(tmp_path, str(path))
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == refused and len(refused) > 5, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed():
    assert (Path(kvtide.__file__).parent / "py.typed").exists()
