"""Models that other programs have, and Model.from_pretrained against a stand-in of the Hugging Face Hub."""

import json
import os
import subprocess
import sys

import pytest
from hub_stand_in import COMMIT, hub

import kvtide
from kvtide import _native, errors  # noqa: F401
from kvtide._hub import wanted_files


@pytest.fixture
def stores(tmp_path, tiny, monkeypatch):
    """The tiny model as Hugging Face, Ollama and LM Studio keep it."""
    for name in ("HF_HUB_CACHE", "HF_HOME", "OLLAMA_MODELS", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    snapshot = tmp_path / "cache/huggingface/hub/models--Org--Tiny/snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "tiny.gguf").symlink_to(tiny)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs/main").write_text(COMMIT)
    manifest = tmp_path / ".ollama/models/manifests/registry.ollama.ai/library/tiny/latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:12"}]}))
    (tmp_path / ".ollama/models/blobs").mkdir()
    (tmp_path / ".ollama/models/blobs/sha256-12").symlink_to(tiny)
    studio = tmp_path / ".lmstudio/models/Org/Tiny"
    studio.mkdir(parents=True)
    (studio / "tiny.gguf").symlink_to(tiny)
    return tmp_path


def test_models_of_other_programs_are_loaded_by_name(stores):
    for name in ("hf:Org/Tiny", "hf:Org/Tiny@012345/tiny.gguf", "ollama:tiny", "lmstudio:Org/Tiny"):
        with kvtide.Model.load(name) as model:
            assert model.vocabulary == 64
    with pytest.raises(errors.NotFoundError, match="hf download Org/Other"):
        kvtide.Model.load("hf:Org/Other")


def test_from_pretrained_finds_what_the_cache_has_and_a_path_wins(stores, tiny):
    with kvtide.Model.from_pretrained("Org/Tiny", local_files_only=True) as model:
        assert model.path.endswith("tiny.gguf")
    with kvtide.Model.from_pretrained(tiny, threads=1) as model:
        assert model.path == str(tiny)
    with pytest.raises(errors.NotFoundError, match="Org/Other"):
        kvtide.Model.from_pretrained("Org/Other", local_files_only=True)
    with pytest.raises(TypeError):
        kvtide.Model.from_pretrained("Org/Tiny", filename=3)


def test_files_that_a_model_is_loaded_from():
    folder = ["config.json", "model.safetensors", "tokenizer.json", "README.md", "onnx/model.onnx", "original/x.safetensors"]
    assert wanted_files("a/b", folder, None) == ["config.json", "model.safetensors", "tokenizer.json"]
    split = ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf", "README.md"]
    assert wanted_files("a/b", split, None) == split[:2]
    both = ["x.gguf", "y.gguf"]
    assert wanted_files("a/b", both, "y.gguf") == ["y.gguf"]
    with pytest.raises(errors.InvalidArgumentError, match="x.gguf, y.gguf"):
        wanted_files("a/b", both, None)
    with pytest.raises(errors.NotFoundError, match="it has x.gguf, y.gguf"):
        wanted_files("a/b", both, "z.gguf")
    with pytest.raises(errors.NotFoundError, match="neither safetensors"):
        wanted_files("a/b", ["README.md"], None)


def from_pretrained(home, address, call):
    """In a process of its own: huggingface_hub reads the environment once."""
    code = f"import kvtide\ntry:\n    print(kvtide.Model.from_pretrained({call}).path)\nexcept kvtide.Error as e:\n    print(type(e).__name__, e)"
    more = {"HF_ENDPOINT": address, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_CACHE": str(home / "hub")}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **more}, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


def test_from_pretrained_downloads_what_is_missing_once(tmp_path, tiny, models):
    pytest.importorskip("huggingface_hub")
    folder = {path.name: path.read_bytes() for path in (models.parent / "folders" / "lfm2-f32").iterdir()}
    repositories = {"org/folder": {**folder, "README.md": b"#"}, "org/files": {"a.gguf": tiny.read_bytes(), "b.gguf": b"no"}}
    with hub(repositories) as (address, asked):
        assert from_pretrained(tmp_path, address, "'org/folder'").endswith(f"models--org--folder/snapshots/{COMMIT}")
        assert not any("README" in path for path in asked)
        assert from_pretrained(tmp_path, address, "'org/files', filename='a.gguf'").endswith("a.gguf")
        assert "a.gguf, b.gguf" in from_pretrained(tmp_path, address, "'org/files'")
        assert from_pretrained(tmp_path, address, "'org/none'").startswith("NotFoundError")
        del asked[:]
        assert from_pretrained(tmp_path, address, "'org/folder', local_files_only=True").endswith(COMMIT)
        assert not asked
    # Without the network, what is there is used.
    assert from_pretrained(tmp_path, address, "'org/folder'").endswith(COMMIT)
    assert from_pretrained(tmp_path, address, "'org/other'").startswith("IoError")
