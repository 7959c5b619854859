"""Replicas without Ray, as llama-swap starts and stops them: sessions go on in the next process."""

import signal
import subprocess
import sys

import pytest
from local_cluster import SingleServer, free_port, wait_for
from test_ray import MODEL, say


class Swapped:
    """One model at a time: a request starts its process, and the one before is ended, gently or not."""

    def __init__(self, store):
        self._store, self._process = store, None
        self.base = ""

    def start(self):
        port = free_port()
        chat = ["--chat-template", "chatml"] if "llama" in MODEL else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kvtide.cluster", MODEL, "--kv-budget", "256M", "--store", str(self._store), "--port", str(port),
             "--threads", "1", "--lease-seconds", "2", *chat]  # fmt: skip
        )
        self.base = f"http://127.0.0.1:{port}"
        wait_for(self.base + "/health")

    def stop(self, how):
        self._process.send_signal(how)
        self._process.wait(30)


@pytest.fixture(scope="module")
def single():
    server = SingleServer(MODEL, 1, "256M")
    yield server
    server.close()


def test_a_session_goes_on_in_the_next_process(single, tmp_path):
    swapped, text = Swapped(tmp_path / "store"), "the sea is a man"
    for number in range(4):
        swapped.start()
        try:
            ours, _ = say(swapped.base, text, "talk", number)
        finally:
            swapped.stop(signal.SIGKILL if number % 2 else signal.SIGTERM)
        theirs, _ = say(single.base, text, None, number)
        assert ours["choices"] == theirs["choices"]
        assert not number or ours["usage"]["prompt_tokens_details"]["cached_tokens"] > 4
        text += ours["choices"][0]["text"] + " and the king"


def test_a_replica_that_differs_says_so(tmp_path):
    swapped = Swapped(tmp_path / "store")
    swapped.start()
    swapped.stop(signal.SIGTERM)
    command = [sys.executable, "-m", "kvtide.cluster", MODEL, "--kv-budget", "256M", "--store", str(tmp_path / "store"), "--context", "77"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "and this one has 77" in done.stderr
