"""os.fork and multiprocessing: the child has the memory of its parent and none of its threads; both go on, and both end."""

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

from kvtide import _native  # noqa: F401  needs the extension
from together import LIMIT_S

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

START = """
import os, sys, threading, time
import numpy as np
import kvtide
model = kvtide.Model.load(sys.argv[1])
session = model.session(threads=3, prefill_chunk=4)
session.read("ab")
def finish(child):
    if child != 0:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def run(code, *args):
    """What parent and child write; both go on to the end of the interpreter."""
    command = [sys.executable, "-c", START + code, *map(str, args)]
    # A group of its own: a child that hangs must not outlive the test.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        pytest.fail(f"waited {LIMIT_S} s for the end of a process that forked: {out} {err}")
    assert process.returncode == 0, err
    return out, err


ALIVE = {
    "a session": "",
    "a state of its own and an array": "kept = [session.state.fork(), session.state.keys(0)]",
    "a stateful model": "kept = kvtide.StatefulModel(model, threads=3)",
    "a generation": "kept = session.generate(); next(kept)",
    "shards": """
kvtide.ShardFolder.export(sys.argv[1], sys.argv[2], slots=64)
folder = kvtide.ShardFolder(sys.argv[2], threads=3)
shard = folder.open("mlp.0")
state = folder.open("attention.0").make_state()
""",
    "all of it, in globals of other modules": """
import builtins
builtins.kept = [session, session.fork(), kvtide.StatefulModel(model, threads=2)]
""",
}


@pytest.mark.parametrize("code", ALIVE.values(), ids=ALIVE)
@pytest.mark.parametrize("end", ["", "; del session, model", "; sys.exit(0)"])
def test_a_child_ends_whatever_its_parent_had(tiny, tmp_path, code, end):
    assert run(f"{code}\nchild = os.fork()\nfinish(child){end}\n", tiny, tmp_path / "shards") == ("", "")


def test_parent_and_child_go_on_with_what_there_was_each_for_itself(tiny, tmp_path):
    code = """
kvtide.ShardFolder.export(sys.argv[1], sys.argv[2], slots=64)
folder = kvtide.ShardFolder(sys.argv[2], threads=2)
shard, inputs = folder.open("mlp.0"), {"x": np.ones((1, folder.width, 1, 1), np.float32)}
stateful = kvtide.StatefulModel(model, threads=2)
state, array = session.state.fork(), session.state.keys(0)
writing = session.fork().generate(max_tokens=8)
next(writing)
wanted = model.session(threads=1)
wanted.read("abcdef")
child = os.fork()
session.read("cdef")
assert np.array_equal(session.logits, wanted.logits)
other = model.session(threads=2)
other.restore(state)
other.read("cdef")
assert np.array_equal(other.logits, wanted.logits) and array.any()
text = "".join(piece.text for piece in writing)
sys.stdout.write(f"{shard.predict(inputs).sum()} {stateful.predict([5], np.ones(1)).sum()} {text}\\n")  # in one piece
del array
session.state.truncate(1) if child else session.clear()
path = f"{sys.argv[2]}.{child != 0}.kv"
session.save(path)
session.load(path)
finish(child)
"""
    out, err = run(code, tiny, tmp_path / "shards")
    lines = out.splitlines()
    assert err == "" and len(lines) == 2 and lines[0] == lines[1]


def test_a_child_is_told_what_a_thread_of_its_parent_was_using(tiny):
    code = """
started = threading.Event()
def work():
    try:
        while True:
            session.clear()
            session.read([5] * 200, progress=lambda *_: started.set())
    except kvtide.errors.CancelledError:  # the interpreter ends
        pass
threading.Thread(target=work, daemon=True).start()
assert started.wait(60)
for _ in range(10):
    child = os.fork()
    if child == 0:
        with model.session(threads=2) as own:
            own.read("abc")
            assert own.position == 3
        try:
            session.read("a")
        except kvtide.errors.BusyError as error:
            assert "when the process forked" in str(error) and "from the model" in str(error)
            assert session.busy and "busy" in repr(session)
        break
    finish(child)
"""
    assert run(code, tiny) == ("", "")


def test_a_child_with_a_computing_thread_of_its_own_ends(tiny):
    code = """
child = os.fork()
if child == 0:
    started = threading.Event()
    def work():
        while True:
            session.clear()
            session.read([5] * 200, progress=lambda *_: started.set())
    threading.Thread(target=work, daemon=True).start()
    assert started.wait(60)
    time.sleep(0.01)
finish(child)
"""
    for _ in range(3):
        _, err = run(code, tiny)
        assert "terminate" not in err and "Fatal" not in err


def test_a_fork_in_a_callback_goes_on_in_both_processes(tiny):
    code = """
children = []
session.read([5] * 20, progress=lambda done, of: children.append(os.fork()) if done == 8 else None)
session.read("a")
sys.stdout.write(f"{session.position}\\n")  # in one piece
sys.stdout.flush()
finish(children[0])
"""
    assert run(code, tiny) == ("23\n23\n", "")


KEPT = {}  # what the workers of a pool inherit


def worker(text):
    session = KEPT["session"]
    session.read(text)
    return session.logits


def test_workers_of_multiprocessing_continue_the_text_that_their_parent_read(model, text):
    with model.session(threads=2) as session, model.session(threads=1) as alone:
        session.read("ab")
        KEPT["session"] = session
        try:
            with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
                results = pool.map_async(worker, [text] * 4, chunksize=1).get(LIMIT_S)
        finally:
            KEPT.clear()
        alone.read("ab")
        alone.read(text)
        for result in results:
            np.testing.assert_array_equal(result, alone.logits)
        assert session.position == 2
