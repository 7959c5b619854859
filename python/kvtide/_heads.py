"""Which heads of a model copy from the past: what a procedural memory gives its rows by."""

from __future__ import annotations

import logging
import os
from typing import Any

from kvtide import _native
from kvtide._arguments import file_path
from kvtide._cache_folder import made
from kvtide._loaded import LoadedModel


def with_heads(options: dict[str, Any], model: LoadedModel) -> dict[str, Any]:
    """Options of a procedural memory whose ``heads``, if a word, a path or nothing, became the table that they stand for."""
    heads = options.get("heads", "auto")
    if not isinstance(heads, (str, bytes, os.PathLike)):
        return options
    others = {name: value for name, value in options.items() if name not in ("heads", "kv_heads")}
    if heads == "even":
        return others
    table = _known(model) if heads == "auto" else _native.read_heads(file_path(heads))
    return others if table is None else {**others, "kv_heads": table[0], "heads": table[1]}


def _known(model: LoadedModel) -> tuple[int, list[tuple[float, float, float, float]]] | None:
    table = _native.known_heads(model._native, made(model._cache_place))
    if table is None and not model._said_unknown:
        model._said_unknown = True
        logging.getLogger("kvtide").warning(
            "%s: which heads copy from the past is not known, so all are treated alike and less is recalled; "
            "model.measure_heads() measures it, once per model (procedural={'heads': 'even'}: no warning)",
            model.title,
        )
    return table
