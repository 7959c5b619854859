"""Replicas without Ray, as llama-swap starts and stops them: sessions go on in the next process."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from local_cluster import SingleServer, free_port, wait_for
from test_ray import MODEL, say

CONFIGURATION = Path(__file__).parent.parent.parent / "examples" / "cluster" / "llama-swap.yaml"
CHAT = " --chat-template chatml" if "llama" in MODEL else ""

# What llama-swap's published schema says of the settings that the example uses.
OF_ALL = {"healthCheckTimeout": lambda value: isinstance(value, int) and value >= 15, "models": lambda value: isinstance(value, dict)}
OF_ONE = {
    "cmd": lambda value: isinstance(value, str) and "${PORT}" in value,
    "checkEndpoint": lambda value: isinstance(value, str) and value.startswith("/"),
    "ttl": lambda value: isinstance(value, int) and value >= -1,
    "unloadTimeout": lambda value: isinstance(value, int) and value >= 0,
    "concurrencyLimit": lambda value: isinstance(value, int) and value >= 0,
}


class Swap:
    """Does with a configuration what llama-swap does: the model of a request is started, and the one before is ended."""

    def __init__(self, configuration, folder):
        self._models, self._seconds, self._folder = configuration["models"], configuration["healthCheckTimeout"], folder
        self._running, self._process = None, None
        self.base, self.starts = "", 0

    def ask(self, path, body, headers):
        if body["model"] != self._running:
            self.stop(signal.SIGTERM)
            self._start(body["model"])
        # The Host header is the client's, as behind llama-swap.
        return httpx.post(self.base + path, json=body, headers={"host": "localhost:9000", **headers}, timeout=60)

    def _start(self, name):
        port, one = free_port(), self._models[name]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        command = shlex.split(one["cmd"].replace("${PORT}", str(port)))
        self._process = subprocess.Popen(command, cwd=self._folder, env={**os.environ, "PATH": path})
        self._running, self.base, self.starts = name, f"http://localhost:{port}", self.starts + 1
        wait_for(self.base + one["checkEndpoint"], self._seconds)

    def stop(self, how):
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(self._models[self._running].get("unloadTimeout", 10))
        self._running, self._process = None, None


@pytest.fixture(scope="module")
def single():
    server = SingleServer(MODEL, 1, "256M")
    yield server
    server.close()


@pytest.fixture
def swap(tmp_path):
    text = CONFIGURATION.read_text().replace("/srv/sessions", str(tmp_path / "sessions"))
    configuration = yaml.safe_load(text)
    for name, one in configuration["models"].items():
        (tmp_path / f"{name}.gguf").symlink_to(MODEL)
        one["cmd"] += f" --threads 1 --lease-seconds 2{CHAT}"
    made = Swap(configuration, tmp_path)
    yield made
    made.stop(signal.SIGKILL)


def test_the_example_has_settings_that_llama_swap_knows():
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    assert all(OF_ALL[key](value) for key, value in configuration.items())
    for name, one in configuration["models"].items():
        assert all(OF_ONE[key](value) for key, value in one.items())
        # The name that clients send is the one that the process answers to.
        assert f" {name}=" in one["cmd"]


def test_sessions_go_on_when_models_are_swapped(single, swap):
    texts = {"small": "the sea is a man", "large": "the king and the sea"}
    for number in range(3):
        for name, text in texts.items():
            body = {"prompt": text, "max_tokens": 8, "temperature": 0.9, "seed": number, "logprobs": 2}
            ours = swap.ask("/v1/completions", {**body, "model": name}, {"x-session-id": "talk"})
            assert ours.status_code == 200, ours.text
            theirs, _ = say(single.base, text, None, number)
            assert ours.json()["choices"] == theirs["choices"]
            assert not number or ours.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 4
            texts[name] = text + theirs["choices"][0]["text"] + " and the king"
            if number == 1:
                swap.stop(signal.SIGKILL)
    assert swap.starts == 6


def test_a_replica_that_differs_says_so(swap, tmp_path):
    swap.ask("/v1/completions", {"model": "small", "prompt": "the sea", "max_tokens": 2}, {"x-session-id": "talk"})
    store = str(tmp_path / "sessions" / "small")
    swap.stop(signal.SIGTERM)
    command = [sys.executable, "-m", "kvtide.cluster", MODEL, "--kv-budget", "256M", "--store", store, "--context", "77"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "and this one has 77" in done.stderr
