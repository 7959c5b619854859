"""Turning what a caller gives into what the native module takes, with messages that name the argument."""

from __future__ import annotations

import numbers
import os
import re
from typing import Any, Iterable, Sequence

import numpy as np

from kvtide._checks import integer
from kvtide.errors import BadTextError, InvalidArgumentError

_INT32 = np.iinfo(np.int32)
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B|bytes)?\s*", re.IGNORECASE)


def utf8(text: Any, name: str = "text") -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadTextError(f"{name}: character {error.start} is half of a surrogate pair, which is no text") from None


def token_ids(tokens: Any) -> np.ndarray:
    """A contiguous int32 array. TypeError for anything but integers along one axis."""
    if isinstance(tokens, (str, bytes, dict, set)):
        raise TypeError(f"tokens must be a sequence of integers, not {type(tokens).__name__}")
    if not isinstance(tokens, np.ndarray):
        tokens = list(tokens) if isinstance(tokens, Iterable) else tokens
        try:
            array = np.asarray(tokens)
        except (ValueError, OverflowError):  # ragged nested lists
            raise TypeError("tokens must be a sequence of integers") from None
    else:
        array = tokens
    if array.ndim != 1:
        raise TypeError(f"tokens must have one axis, not shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind == "O" and all(isinstance(token, numbers.Integral) for token in array):
        raise InvalidArgumentError("tokens: at least one id is beyond 64 bits, and outside every vocabulary")
    if array.dtype.kind not in "iu":
        raise TypeError(f"tokens must be integers, not {array.dtype}")
    for token in (array.min(), array.max()):
        if not _INT32.min <= token <= _INT32.max:
            raise InvalidArgumentError(f"token id {token} is outside every vocabulary")
    return np.ascontiguousarray(array, dtype=np.int32)


def whole(value: Any, name: str, lowest: int = 0, highest: int = 2**62) -> int:
    """An integer within bounds that the native module can hold."""
    number = integer(value, name)
    if not lowest <= number <= highest:
        raise InvalidArgumentError(f"{name} must be between {lowest} and {highest}, not {number}")
    return number


def byte_count(value: Any, name: str) -> int:
    """A number of bytes: an integer, or text such as "64M", "64 MiB" or "1.5G" (units are powers of 1024)."""
    if not isinstance(value, str):
        return whole(value, name, 1)
    match = _SIZE.fullmatch(value)
    if match is None:
        raise InvalidArgumentError(f"{name} must be a number of bytes such as 64M or 1.5G, not {value!r}")
    power = " KMGT".index((match[2] or " ").upper())
    return whole(int(float(match[1]) * 1024**power), name, 1)


def real(value: Any, name: str) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgumentError(f"{name} is too large: {value}") from None


def string(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {value!r}")
    utf8(value, name)
    return value


def strings(values: Any, name: str) -> list[str]:
    """A list of strings; one string stands for a list of one."""
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, Sequence) or isinstance(values, bytes):
        raise TypeError(f"{name} must be a string or a list of strings, not {values!r}")
    return [string(value, f"{name}[{i}]") for i, value in enumerate(values)]


def callback(value: Any, name: str) -> Any:
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable or None, not {value!r}")
    return value


def file_path(value: Any) -> bytes:
    path = os.fsencode(value)
    if b"\0" in path:
        raise InvalidArgumentError("path: a file name cannot hold a null character")
    return path


def size_text(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
