"""The cache folder: where packed weights and fetched models are kept."""

from __future__ import annotations

import os
from typing import Any

from kvtide._arguments import file_path


def cache_place() -> bytes:
    """$XDG_CACHE_HOME/kvtide or ~/.cache/kvtide; empty where the environment names neither.

    src/cli/commands/cache_folder.cpp says the same of the program's environment.
    """
    # Relative ones are to be ignored, says the XDG base directory specification.
    cache, home = (os.environb.get(name, b"") for name in (b"XDG_CACHE_HOME", b"HOME"))
    if cache.startswith(b"/"):
        return cache + b"/kvtide"
    return home + b"/.cache/kvtide" if home.startswith(b"/") else b""


def weights_folder(cache: Any) -> bytes:
    """Where packed weights are kept: True: as the program does it; False: nowhere; else a folder."""
    if isinstance(cache, bool):
        place = cache_place() if cache else b""
        return place + b"/weights" if place else b""
    return file_path(cache)


def made_cache_place(cache: Any) -> bytes:
    """The folder where hashes and head tables of models are kept, which is there then: as for ``weights_folder``."""
    place = (cache_place() if cache else b"") if isinstance(cache, bool) else file_path(cache)
    if place:
        try:
            os.makedirs(place, exist_ok=True)
        except OSError:  # a cache that cannot be written only costs time
            return b""
    return place
