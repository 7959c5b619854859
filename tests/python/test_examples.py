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


def test_seeing_less_and_everything_again(tiny, text):
    result = run("03_attention_size.py", tiny, text, "8")
    assert result.returncode == 0, result.stderr
    assert "the newest 8" in result.stdout and result.stdout.count("attention: ") == 3


def test_forking(tiny, text):
    result = run("04_fork.py", tiny, text, "2")
    assert result.returncode == 0, result.stderr
    assert "way 0" in result.stdout and "way 1" in result.stdout and " shared" in result.stdout


def test_saving_and_going_on(tiny, text, tmp_path):
    result = run("05_snapshot.py", tiny, text, tmp_path / "text.kv")
    assert result.returncode == 0, result.stderr
    assert "keyCache: float16 (" in result.stdout and "pastLen: int32 (1,)" in result.stdout
    assert "goes on: " in result.stdout


@pytest.mark.parametrize("name", ["03_attention_size.py", "04_fork.py", "05_snapshot.py"])
def test_an_example_without_a_model_says_what_is_missing(name):
    result = run(name, "no-such-model.gguf", "text", "8")
    assert result.returncode == 1 and "no-such-model.gguf" in result.stderr and "Traceback" not in result.stderr
    assert "python examples/python/" in run(name).stderr


def test_converting_kana_asks_for_a_model():
    assert "06_kana_kanji.py MODEL" in run("06_kana_kanji.py").stderr
    result = run("06_kana_kanji.py", "no-such-model.gguf", "カナ")
    assert result.returncode == 1 and "no-such-model.gguf" in result.stderr and "Traceback" not in result.stderr


def test_converting_kana_reads_the_prompt_once_and_then_token_by_token(models):
    result = run("06_kana_kanji.py", models.parent / "folders" / "gpt2-f32", "かな", "x")
    assert result.returncode == 0, result.stderr
