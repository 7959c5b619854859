"""Calls from Python in which an allocation of kvtide's fails: a result, or MemoryError; never the end of the process.

A child process runs each operation again and again under the library of tests/faults, which is preloaded. What fails
there is what C++ allocates (operator new, mmap, threads): how Python and nanobind do without memory is theirs to say.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvtide import _native  # noqa: F401

HERE = Path(__file__).parent
FAULTS = Path(os.environ.get("KVTIDE_ALLOCATION_FAULTS", HERE.parents[1] / "build/cmake/tests/liballocation_faults.so"))
OPERATIONS = [
    "load", "session", "read", "generate", "iterate", "answer", "hooks", "conversation", "procedural", "own state", "validate",
    "shards", "fork", "save", "restore", "views", "transitions", "dense", "stateful", "coreml",
]  # fmt: skip
LONGEST = 3600 if os.environ.get("KVTIDE_EVERY_ALLOCATION") else 600  # seconds; the child ends a single call that waits


@pytest.mark.skipif(not FAULTS.exists(), reason=f"{FAULTS} is made with the C++ tests")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_call_gives_a_result_or_memory_error(operation, models, tmp_path):
    environment = dict(os.environ, LD_PRELOAD=str(FAULTS), PYTHONPATH=os.pathsep.join(sys.path))
    child = [sys.executable, "-B", str(HERE / "allocation_faults.py"), operation, str(models), str(tmp_path)]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "errors" in done.stdout
