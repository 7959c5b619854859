"""Models by name: where `kvtide fetch` puts them. Which name means which of them, the native module knows."""

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


def model_path(model: Any) -> bytes:
    """A path stays what it is, a name becomes the path of the model that has it. Raises NotFoundError,
    InvalidArgumentError (several begin so)."""
    path = file_path(model)
    return _native.model_path(path, models_folder()) if isinstance(model, str) else path
