"""Models by name: where `kvtide fetch` puts them, and where other programs keep theirs. Which name means which of them, the
native module knows."""

from __future__ import annotations

import os
from typing import Any

from kvtide import _native
from kvtide._arguments import file_path
from kvtide._cache_folder import cache_place


def models_folder() -> bytes:
    """$KVTIDE_MODELS, or kvtide/models in the cache folder; empty where the environment names neither.

    src/cli/commands/models_folder.cpp says the same of the program's environment.
    """
    own = os.environb.get(b"KVTIDE_MODELS")
    if own:
        return own
    cache = cache_place()
    return cache + b"/models" if cache else b""


def model_stores() -> tuple[bytes, bytes, bytes]:
    """The folders of Hugging Face's cache, of Ollama's models and of LM Studio's; empty where the environment names none.

    src/cli/commands/models_folder.cpp says the same of the program's environment.
    """
    home, cache, hub, hub_home, ollama = (
        os.environb.get(name, b"") for name in (b"HOME", b"XDG_CACHE_HOME", b"HF_HUB_CACHE", b"HF_HOME", b"OLLAMA_MODELS")
    )
    if not hub:
        place = hub_home or (cache + b"/huggingface" if cache else home + b"/.cache/huggingface" if home else b"")
        hub = place + b"/hub" if place else b""
    if not ollama:
        service = b"/usr/share/ollama/.ollama/models"
        ollama = home + b"/.ollama/models" if home else b""
        if not os.path.exists(ollama) and os.path.exists(service):
            ollama = service
    return hub, ollama, home + b"/.lmstudio/models" if home else b""


def model_path(model: Any) -> bytes:
    """A path stays what it is, a name becomes the path of the model that has it: of one in the folder, or ``hf:ORG/NAME``,
    ``ollama:NAME``, ``lmstudio:ORG/NAME``. Raises NotFoundError, InvalidArgumentError (several begin so)."""
    path = file_path(model)
    if not isinstance(model, str) or os.path.exists(path):
        return path
    stored: bytes | None = _native.stored_model(path, *model_stores())
    return _native.model_path(path, models_folder()) if stored is None else stored
