"""Copying between the rows of a native state and arrays."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import numpy as np

from kvtide import _layouts
from kvtide._arguments import whole
from kvtide._layouts import Layer
from kvtide.errors import InvalidArgumentError

_FLOATS: dict[str, np.dtype] = {"f16": np.dtype(np.float16), "f32": np.dtype(np.float32)}


def rows_of(native: Any, layers: Sequence[Layer], layer: Any, keys: bool, copy: bool | None) -> np.ndarray:
    """All rows that a layer holds, [kv_heads, rows, head_dim], read-only."""
    layer = whole(layer, "layer", 0, len(layers) - 1)
    stored = native.shape[1 if keys else 2]
    runs = native.runs(layer)
    if copy is not True and stored in _FLOATS and len(runs) == 1:
        seen: np.ndarray = native.view(layer, keys, *runs[0])
        return seen
    if copy is False and runs:
        why = f"they are kept as {stored}" if stored not in _FLOATS else f"they lie in {len(runs)} pieces"
        raise InvalidArgumentError(f"the rows of layer {layer} cannot be seen without a copy: {why}")
    pieces = [_piece(native, layers[layer], layer, keys, *run) for run in runs]
    empty = np.empty((layers[layer].kv_heads, 0, layers[layer].head_dim), _FLOATS.get(stored, np.dtype(np.float32)))
    result = np.concatenate([empty, *pieces], axis=1)
    result.flags.writeable = False
    return result


def read_array(
    native: Any, layers: Sequence[Layer], name: str, capacity: int, dtype: Any, exact_only: bool
) -> np.ndarray:
    """One named array, as a copy."""
    position = native.numbers[0]
    if name == _layouts.PAST_LENGTH:
        return np.array([position], np.int32)
    plan = _layouts.plan(name, layers)
    first = _first_row(native, layers, plan, position, exact_only)
    kv_heads, head_dim, window = layers[plan.blocks[0].layer]
    if plan.windows_only:
        capacity = min(capacity, *(layers[block.layer].window or capacity for block in plan.blocks))
    if position - first > capacity:
        raise InvalidArgumentError(f"{position - first} rows do not fit an array of {capacity}")
    stored = {native.shape[1 if block.keys else 2] for block in plan.blocks}
    own = np.dtype(np.float16 if stored == {"f16"} else np.float32)
    result = np.zeros((*plan.front, kv_heads, capacity, head_dim), _float_dtype(dtype, own))
    blocks = result.reshape(len(plan.blocks), kv_heads, capacity, head_dim)
    if position > first:
        for target, block in zip(blocks, plan.blocks, strict=True):
            target[:, : position - first] = _piece(native, layers[block.layer], *block, first, position)
    return result


def write_arrays(
    native: Any,
    layers: Sequence[Layer],
    arrays: dict[str, Any],
    position: int | None,
    tokens: list[int] | None,
    make: Callable[..., Any],
) -> None:
    """Fills a fresh native state from a layout's arrays and puts it in the place of the old one's contents."""
    layout = _layouts.complete(list(arrays), layers)
    held = native.numbers[0]
    position = _position(arrays.pop(_layouts.PAST_LENGTH, None), position, held)
    if tokens is None:
        tokens = native.tokens() if position == held else []
    if native.live and len(tokens) != position:
        raise InvalidArgumentError(
            f"the rows of {position} tokens replace those of {held} in a session: it needs to know which they are; "
            "give tokens=[...]"
        )
    checked = [_checked(name, value, layers, position) for name, value in arrays.items()]
    capacity = max(native.numbers[2], position)
    fresh = make(native.shape, capacity, position, tokens, layout == "split")
    for plan, array in checked if position else ():
        for block, rows in zip(plan.blocks, array, strict=True):
            stored = native.shape[1 if block.keys else 2]
            first = fresh.runs(block.layer)[0][0]
            used = rows[:, : position - first] if plan.windows_only else rows[:, first:position]
            _fill(fresh, block, first, position, used, stored)
    native.replace(fresh)


def _fill(fresh: Any, block: Any, first: int, last: int, rows: np.ndarray, stored: str) -> None:
    own = _FLOATS.get(stored)
    if own == rows.dtype:
        fresh.write_raw(*block, first, last, np.ascontiguousarray(rows).reshape(-1).view(np.uint8))
    else:
        with np.errstate(over="ignore"):  # infinity is refused, by name
            fresh.write(*block, first, last, np.ascontiguousarray(rows, np.float32).reshape(-1))


def _piece(native: Any, shape: Layer, layer: int, keys: bool, first: int, last: int) -> np.ndarray:
    if native.shape[1 if keys else 2] in _FLOATS and any(a <= first and last <= b for a, b in native.runs(layer)):
        seen: np.ndarray = native.view(layer, keys, first, last)
        return seen
    rows = np.empty((shape.kv_heads, last - first, shape.head_dim), np.float32)
    native.read(layer, keys, first, last, rows.reshape(-1))
    stored = _FLOATS.get(native.shape[1 if keys else 2], np.dtype(np.float32))
    return rows.astype(stored, copy=False)


def _first_row(native: Any, layers: Sequence[Layer], plan: _layouts.Plan, position: int, exact_only: bool) -> int:
    """The oldest position that all layers of an array hold as it was written."""
    first = 0
    for layer in dict.fromkeys(block.layer for block in plan.blocks):
        oldest, why = native.plain_rows(layer)
        window = layers[layer].window
        if plan.windows_only and window:
            # The array of these layers holds a window by definition: older rows are no loss.
            if oldest <= max(0, position - window):
                oldest, why = max(0, position - window), ""
        if why and not exact_only:
            hint = " (the layout 'split' has such layers apart)" if window and not plan.windows_only else ""
            raise InvalidArgumentError(
                f"{plan.name!r} cannot say it all: {why}{hint}; exact_only=True reads the positions from {oldest} on "
                "and leaves the others out"
            )
        first = max(first, oldest)
    return first


def _position(past: Any, position: int | None, held: int) -> int:
    if past is not None:
        counted = np.asarray(past)
        if counted.size != 1 or counted.dtype.kind not in "iuf" or counted.reshape(-1)[0] != int(counted.reshape(-1)[0]):
            raise TypeError(f"pastLen must hold one whole number, not {past!r}")
        rows = whole(int(counted.reshape(-1)[0]), "pastLen")
        if position is not None and position != rows:
            raise InvalidArgumentError(f"pastLen says {rows}, position says {position}")
        return rows
    return held if position is None else position


def _checked(name: str, value: Any, layers: Sequence[Layer], position: int) -> tuple[_layouts.Plan, np.ndarray]:
    """The array as [blocks, kv_heads, capacity, head_dim]."""
    plan = _layouts.plan(name, layers)
    array = value if isinstance(value, np.ndarray) else _from_library(name, value)
    if array.dtype not in _FLOATS.values():
        raise TypeError(f"{name} must be float16 or float32, not {array.dtype}")
    kv_heads, head_dim, window = layers[plan.blocks[0].layer]
    rows = min([position, *(layers[b.layer].window or position for b in plan.blocks)]) if plan.windows_only else position
    shape = (*plan.front, kv_heads, None, head_dim)
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape))
    if not fits or array.shape[-2] < rows:
        wanted = ", ".join(f"at least {rows}" if n is None else str(n) for n in shape)
        raise InvalidArgumentError(f"{name} must be [{wanted}], not {list(array.shape)}")
    return plan, array.reshape(math.prod(plan.front), *array.shape[-3:])


def _from_library(name: str, value: Any) -> np.ndarray:
    if isinstance(value, (str, bytes, dict, type(None))) or not hasattr(value, "__dlpack__"):
        raise TypeError(f"{name} must be a NumPy array or a tensor in main memory, not {type(value).__name__}")
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:
        raise TypeError(f"{name} cannot be read as an array: {error}") from None


def _float_dtype(dtype: Any, own: np.dtype) -> np.dtype:
    if dtype is None:
        return own
    try:
        wanted: np.dtype = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype must be float16 or float32, not {dtype!r}") from None
    if wanted not in _FLOATS.values():
        raise TypeError(f"dtype must be float16 or float32, not {wanted}")
    return wanted
