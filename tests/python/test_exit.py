"""The interpreter ends cleanly whatever is still alive. Each test is a process of its own."""

import os
import signal
import subprocess
import sys
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


def test_ctrl_c_stops_a_reading(tiny):
    # A parent may have told its children to ignore the signal.
    code = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
try:
    while True:
        session.clear()
        session.read([5] * 250)
except KeyboardInterrupt:
    print("stopped", session.position < 250, session.read([5]), flush=True)
"""
    command = [sys.executable, "-c", START + code, str(tiny)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        try:
            output = process.communicate(timeout=60)[0]
        finally:
            process.kill()
    assert process.returncode == 0 and output.startswith("stopped")
