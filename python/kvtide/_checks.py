"""The checks that the functions on array states share. Each raises with the words that its callers promise."""

from __future__ import annotations

import operator
from typing import Any, Sequence


def integer(value: Any, name: str) -> int:
    """The value as an int. TypeError for floats, bools and everything else that does not count things."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {value}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


def four_axes(shape: Sequence[int]) -> None:
    if len(shape) != 4:
        raise ValueError(f"Expected 4D state tensor [rows, kv_heads, seq, head_dim], got shape {tuple(shape)}")


def position_within(position: int, source_length: int) -> None:
    if position > source_length:
        raise ValueError(
            f"current_position ({position}) cannot exceed the source sequence length ({source_length})"
        )
    not_negative(position, "current_position")


def not_negative(value: int, name: str) -> None:
    if value < 0:
        raise ValueError(f"{name} ({value}) must not be negative")


def same_but_for_length(source_shape: Sequence[int], target_shape: Sequence[int]) -> None:
    for axis, what in ((0, "Layer count"), (1, "KV head count"), (3, "Head dimension")):
        if source_shape[axis] != target_shape[axis]:
            raise ValueError(
                f"{what} mismatch: source has {source_shape[axis]}, target has {target_shape[axis]}"
            )
