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


def place_of(cache: Any) -> bytes:
    """The folder that ``cache`` means: True: the program's; False: none, which is empty; else a folder of the caller's."""
    if isinstance(cache, bool):
        return cache_place() if cache else b""
    return file_path(cache)


def weights_folder(cache: Any) -> bytes:
    """Where packed weights are kept: in a folder of their own in the program's, or right in the caller's."""
    place = place_of(cache)
    return place + b"/weights" if place and isinstance(cache, bool) else place


def made(place: bytes) -> bytes:
    """The folder, which is there then; empty where it cannot be: a cache only saves time."""
    if place:
        try:
            os.makedirs(place, exist_ok=True)
        except OSError:
            return b""
    return place
