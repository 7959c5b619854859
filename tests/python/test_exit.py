"""The interpreter ends cleanly whatever is still alive. Each test is a process of its own."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kvtide import _native  # noqa: F401  needs the extension

START = """
import sys, threading, time
import kvtide
model = kvtide.Model.load(sys.argv[1])
session = model.session(prefill_chunk=1)
"""


def run(code, tiny, *args, **kwargs):
    command = [sys.executable, "-W", "error", "-c", START + code, str(tiny), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **kwargs)


@pytest.mark.parametrize(
    "code",
    [
        "generation = session.generate('ab'); next(generation)",
        "generation = session.generate('ab'); next(generation); del session, model",
        "import builtins; builtins.kept = session.generate('ab'); next(builtins.kept)",
        "session.read('ab', progress=lambda *_: None)",
        "loop = [session]; loop.append(loop); del session",
        "session.read('ab'); kept = session.logits; del session, model; assert kept.sum() == kept.sum()",
        "import threading; kept = threading.local(); kept.session = session",
        "session.cancel(); session.close(); model.close()",
        "session.read('ab'); kept = session.state.keys(0); del session, model; assert kept.any()",
        "session.read('ab'); kept = [session.state, session.fork(), session.state.fork()]; kept.append(kept)",
        "import builtins; session.read('ab'); builtins.kept = session.state.keys(0); session.close()",
        "import threading; session.read('ab'); kept = threading.local(); kept.rows = session.state.values(1)",
        "kept = kvtide.State(layers=2, kv_heads=1, head_dim=32, capacity=9); kept.loop = kept",
    ],
)
def test_whatever_is_alive_at_the_end_ends_with_it(tiny, code):
    result = run(code, tiny)
    assert (result.returncode, result.stderr) == (0, "")


BUSY_THREAD = """
started = threading.Event()
def work():
    while True:
        session.clear()
        {call}
threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep({delay})
"""


@pytest.mark.parametrize("delay", [0, 0.003, 0.05])
@pytest.mark.parametrize(
    "call",
    [
        "session.read([5] * 200, progress=lambda *_: started.set())",
        "started.set(); session.read([5] * 200)",
        "started.set(); session.complete('ab', max_tokens=200, on_text=lambda text: None)",
        "started.set(); list(session.generate('ab', max_tokens=200))",
        "started.set(); kvtide.Model.load(sys.argv[1])",
        "started.set(); session.read([5] * 100); session.save(sys.argv[2]); session.load(sys.argv[2])",
    ],
)
def test_a_daemon_thread_in_the_middle_of_a_call_is_stopped(tiny, tmp_path, call, delay):
    result = run(BUSY_THREAD.format(call=call, delay=delay), tiny, tmp_path / "state.kv")
    assert result.returncode == 0, result.stderr
    assert "terminate" not in result.stderr and "Fatal" not in result.stderr


def test_sys_exit_in_a_callback_is_an_exit(tiny):
    assert run("session.read('ab', progress=lambda *_: sys.exit(7))", tiny).returncode == 7


# The callback is never left, or comes back when the interpreter no longer runs other threads. atexit runs what was
# registered last first, so `late` runs when the module has given up waiting.
STUCK = {
    "sleeps for ever": ("time.sleep(1000)", ""),
    "computes for ever": ("while True: pass", ""),
    "comes back before the interpreter ends": ("late.wait()", "atexit.register(lambda: (late.set(), time.sleep(0.3)))"),
    "comes back while the interpreter ends": (
        "late.wait(); time.sleep(0.1); None",
        """
class Last:
    def __del__(self, late=late, sleep=time.sleep): late.set(); sleep(0.3)
sys.kept = Last()
""",
    ),
}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sleeps for ever", "session.read([5] * 200, progress=lambda *_: stuck())"),
        ("computes for ever", "session.complete('ab', max_tokens=9, on_text=lambda _: stuck())"),
        ("comes back before the interpreter ends", "session.read([5] * 200, progress=lambda *_: stuck())"),
        ("comes back while the interpreter ends", "session.read([5] * 200, progress=lambda *_: stuck())"),
        ("comes back while the interpreter ends", "kvtide.validate(model, progress=lambda *_: stuck())"),
    ],
)
def test_a_callback_that_does_not_return_keeps_no_process_and_crashes_none(tiny, name, call):
    callback, register = STUCK[name]
    code = f"""
import atexit, sys, threading, time
late = threading.Event()
{register}
{START}
def stuck():
    started.set()
    {callback}
started = threading.Event()
threading.Thread(target=lambda: {call}, daemon=True).start()
assert started.wait(60)
"""
    command = [sys.executable, "-c", code, str(tiny)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


INTERRUPTED = {
    "read": "session.read([5] * 250)",
    "read_logits": "session.read_logits([5] * 250)",
    "score": "session.score([5] * 250)",
    "complete": "session.complete('ab', max_tokens=200)",
    "generate": "list(session.generate('ab', max_tokens=200))",
    "validate": "kvtide.validate(model)",
}


@pytest.mark.parametrize("call", INTERRUPTED.values(), ids=INTERRUPTED)
def test_ctrl_c_stops_a_long_call_after_which_the_session_goes_on(tiny, call):
    # A parent may have told its children to ignore the signal.
    code = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
try:
    while True:
        session.clear()
        {call}
except KeyboardInterrupt:
    print("stopped", session.position < 252, session.read([5]), flush=True)
"""
    command = [sys.executable, "-c", START + code, str(tiny)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(60, process.kill)  # readline() has no limit of its own
        limit.start()
        assert process.stdout.readline() == "ready\n", "waited for a process that reads"
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        output = process.stdout.read()
        limit.cancel()
    assert (process.returncode, output) == (0, "stopped True 1\n")
