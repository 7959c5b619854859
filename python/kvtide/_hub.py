"""Models of the Hugging Face Hub: what is in its cache, and, with huggingface_hub installed, what is not yet."""

from __future__ import annotations

import fnmatch
import importlib
import os
import re
from typing import Any, Sequence

from kvtide import _native
from kvtide._arguments import file_path
from kvtide._models_folder import model_stores
from kvtide.errors import InvalidArgumentError, IoError, NotFoundError

# What a folder of a model is read from.
_FOLDER = ["*.json", "*.safetensors", "*.jinja", "merges.txt", "vocab.txt", "*.model"]
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_FIRST_PART = re.compile(r"-00001-of-(\d{5}\.gguf)$")


def hub_model(
    repo_id: str,
    filename: str | None,
    revision: str | None,
    cache_dir: str | os.PathLike[str] | None,
    local_files_only: bool,
    token: str | bool | None,
) -> bytes:
    """The path of a model in the hub's cache, downloaded if need be and allowed."""
    folder = model_stores()[0] if cache_dir is None else file_path(cache_dir)
    name = "hf:" + repo_id + ("" if revision is None else "@" + revision) + ("" if filename is None else "/" + filename)
    hub = None if local_files_only else _hub()
    failure: IoError | None = None  # of the network: what is there already is used then
    if hub is not None:
        try:
            _download(hub, repo_id, filename, revision, os.fsdecode(folder), token)
        except IoError as error:
            failure = error
    try:
        path = _native.stored_model(os.fsencode(name), folder, b"", b"")
    except NotFoundError as error:
        if failure is not None:
            raise failure from None
        if hub is None and not local_files_only and not _is_offline():
            raise NotFoundError(f"{error}; with huggingface_hub installed, from_pretrained downloads it") from None
        raise
    assert path is not None  # a name that begins with hf: is one of a store
    return path


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _hub() -> Any:
    """huggingface_hub, where it is installed and may use the network."""
    if _is_offline():
        return None
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        return None


def _download(hub: Any, repo_id: str, filename: str | None, revision: str | None, folder: str, token: str | bool | None) -> None:
    errors = importlib.import_module("huggingface_hub.errors")
    try:
        files = hub.HfApi(token=token).list_repo_files(repo_id, revision=revision)
        wanted = wanted_files(repo_id, files, filename)
        hub.snapshot_download(repo_id, revision=revision, cache_dir=folder, token=token, allow_patterns=wanted)
    except (InvalidArgumentError, NotFoundError):
        raise
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        raise NotFoundError(f"{repo_id}: {error}") from error
    except Exception as error:  # of the network, in the classes of whatever library huggingface_hub uses for it
        raise IoError(f"{repo_id}: {error}") from error


def wanted_files(repo_id: str, files: Sequence[str], filename: str | None) -> list[str]:
    """Of the files of a repository those that a model is loaded from."""
    models = [name for name in files if name.endswith(".gguf") and not _LATER_PART.search(name)]
    if filename is None:
        if "config.json" in files and any(name.endswith(".safetensors") for name in files):
            return [name for name in files if "/" not in name and any(fnmatch.fnmatch(name, one) for one in _FOLDER)]
        if not models:
            raise NotFoundError(f"{repo_id} has neither safetensors nor .gguf files")
        if len(models) > 1:
            raise InvalidArgumentError(f"{repo_id} has several files; say which by filename=: {', '.join(models)}")
        filename = models[0]
    if filename not in files:
        raise NotFoundError(f"{repo_id} has no {filename}; it has {', '.join(models) or 'no .gguf files'}")
    parts = _FIRST_PART.sub(r"-?????-of-\1", filename)
    return [name for name in files if name == filename or (parts != filename and fnmatch.fnmatch(name, parts))]
