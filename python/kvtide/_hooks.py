"""What a caller may add to a generation: functions that change logits, and functions that end the answer.

Both come in two forms. The short one takes one argument: the logits, or the Generation. The other takes what
transformers gives, ``(tokens, logits)``, of one sequence: int32 ``[position]``, the ids that the session holds, and
float32 ``[vocabulary]``.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np

from kvtide.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kvtide import _native

Hook = Callable[..., Any]


class Processors:
    """Functions that change the logits from which the next token is chosen."""

    def __init__(self, functions: Sequence[Hook]) -> None:
        self._functions = [(function, takes_two(function)) for function in functions]

    def __bool__(self) -> bool:
        return bool(self._functions)

    def applied(self, logits: np.ndarray, native: _native.Session) -> np.ndarray:
        """One after the other; ``logits`` is the caller's to change. None: changed in place."""
        for function, two in self._functions:
            result = function(native.tokens(), logits) if two else function(logits)
            if result is not None:
                logits = _checked(result, logits.shape)
        return logits


class Criteria:
    """Functions that say whether an answer ends with the newest token."""

    def __init__(self, functions: Sequence[Hook]) -> None:
        self._functions = [(function, takes_two(function)) for function in functions]

    def met(self, generation: object, native: _native.Session) -> bool:
        return any(
            bool(function(native.tokens(), native.logits()) if two else function(generation))
            for function, two in self._functions
        )


def takes_two(function: Hook) -> bool:
    """Whether it cannot be called with fewer than two arguments. A function that does not tell takes one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) >= 2


def _checked(result: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(result)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"logits_processor must give an array of numbers or None, not {result!r:.80}")
    if array.shape != shape:
        raise InvalidArgumentError(f"logits_processor must give logits of shape {shape}, not {array.shape}")
    return np.ascontiguousarray(array, dtype=np.float32)
