"""Values of Python as JSON for chat templates, with messages that name the place of what cannot be said."""

from __future__ import annotations

import json
from typing import Any

from kvtide._arguments import utf8
from kvtide.errors import InvalidArgumentError

_MOST_DEPTH = 60


def json_text(value: Any, where: str, *, names: bool = False) -> str:
    """``names``: the keys of ``value`` are arguments, and messages call what they hold by them."""
    _check(value, where, 0, names)
    return json.dumps(value, ensure_ascii=False)


def _check(value: Any, where: str, depth: int, names: bool = False) -> None:
    """Refuses what no template can take, by its place."""
    if depth > _MOST_DEPTH:
        raise InvalidArgumentError(f"{where[:80]}: more than {_MOST_DEPTH} levels of lists in lists")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: keys must be str, not {key!r}")
            _check(item, key if names else f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check(item, f"{where}[{i}]", depth + 1)
    elif isinstance(value, str):
        utf8(value, where)
    elif isinstance(value, float):
        if value - value != 0:
            raise InvalidArgumentError(f"{where} must be finite, not {value}")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidArgumentError(f"{where}: {value} has more than 64 bits")
    elif value is not None:
        raise TypeError(f"{where}: templates take None, bool, int, float, str, list, tuple and dict, not {type(value).__name__}")
