"""The arrays in which other runtimes keep a KV memory, over the rows of a state.

    unified    kv_cache                          [2 * layers, kv_heads, capacity, head_dim]: all keys, then all values
    split      kv_cache_local, kv_cache_global   as unified: layers with a window of their own apart from the others
    per-layer  layers.I.k_state, .v_state        [1, kv_heads, capacity, head_dim]; a single layer: also k_cache, v_cache
    stacked    keyCache, valueCache              [layers, 1, kv_heads, capacity, head_dim], and pastLen [1]

Row i of an array is position first + i; rows that nobody wrote are zeros. Nothing here touches a state: these are
plans, which kvtide.state carries out.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Sequence

from kvtide.errors import InvalidArgumentError

LAYOUTS = ("unified", "split", "per-layer", "stacked")
PAST_LENGTH = "pastLen"
_PER_LAYER = re.compile(r"layers\.(\d+)\.([kv])_state")


class Layer(NamedTuple):
    """Of a state's shape: what a layer is made of."""

    kv_heads: int
    head_dim: int
    window: int | None


class Block(NamedTuple):
    """The rows of all heads of one layer: keys, or values."""

    layer: int
    keys: bool


class Plan(NamedTuple):
    """One array: its blocks in order, and the axes in front of [kv_heads, capacity, head_dim]."""

    name: str
    blocks: tuple[Block, ...]
    front: tuple[int, ...]
    windows_only: bool  # holds no more than the window of its layers


def names_in(layout: str, layers: Sequence[Layer]) -> tuple[str, ...]:
    """The arrays of a layout, in order."""
    if layout == "unified":
        return ("kv_cache",)
    if layout == "split":
        local = any(layer.window for layer in layers)
        everything = any(not layer.window for layer in layers)
        return ("kv_cache_local",) * local + ("kv_cache_global",) * everything
    if layout == "per-layer":
        return tuple(f"layers.{i}.{part}_state" for i in range(len(layers)) for part in "kv")
    if layout == "stacked":
        return ("keyCache", "valueCache", PAST_LENGTH)
    raise InvalidArgumentError(f"there is no layout {layout!r}; the layouts are {', '.join(LAYOUTS)}")


def layout_of(name: str, layers: Sequence[Layer]) -> str:
    """The layout that an array belongs to."""
    if name in ("k_cache", "v_cache") and len(layers) == 1:
        return "per-layer"
    for layout in LAYOUTS:
        if name in names_in(layout, layers):
            return layout
    known = [names_in(layout, layers)[0] for layout in LAYOUTS]
    raise InvalidArgumentError(f"the state has no array {name!r}; it has {', '.join(known)} and their like")


def plan(name: str, layers: Sequence[Layer]) -> Plan:
    """How an array is made of a state's rows. Not for pastLen, which holds a number."""
    layout = layout_of(name, layers)
    everything = range(len(layers))
    if layout == "per-layer":
        match = _PER_LAYER.fullmatch(name)
        layer, keys = (int(match[1]), match[2] == "k") if match else (0, name == "k_cache")
        return Plan(name, (Block(layer, keys),), (1,), False)
    if layout == "stacked":
        _check_alike(name, everything, layers)
        return Plan(name, tuple(Block(i, name == "keyCache") for i in everything), (len(layers), 1), False)
    local = name == "kv_cache_local"
    chosen = [i for i in everything if layout == "unified" or bool(layers[i].window) == local]
    _check_alike(name, chosen, layers)
    blocks = tuple(Block(i, keys) for keys in (True, False) for i in chosen)
    return Plan(name, blocks, (len(blocks),), local)


def complete(names: Sequence[str], layers: Sequence[Layer]) -> str:
    """The layout that these arrays fill. InvalidArgumentError when one is missing or does not belong."""
    if not names:
        raise InvalidArgumentError("there are no arrays to write")
    layout = layout_of(names[0], layers)
    wanted = set(names_in(layout, layers))
    if layout == "per-layer" and len(layers) == 1:
        alias = {"k_cache": "layers.0.k_state", "v_cache": "layers.0.v_state"}
        names = [alias.get(name, name) for name in names]
    if len(set(names)) != len(names):
        raise InvalidArgumentError("an array is given twice, under two names")
    wanted -= {PAST_LENGTH} - set(names)  # may be left out
    missing, strange = sorted(wanted - set(names)), sorted(set(names) - wanted)
    if missing or strange:
        what = f"lacks {', '.join(missing)}" if missing else f"does not have {', '.join(strange)}"
        raise InvalidArgumentError(f"the layout {layout} {what}")
    return layout


def _check_alike(name: str, chosen: Sequence[int], layers: Sequence[Layer]) -> None:
    for i in chosen:
        if layers[i][:2] != layers[chosen[0]][:2]:
            raise InvalidArgumentError(
                f"layers {chosen[0]} and {i} have heads of different shapes, which {name!r} cannot hold; "
                "read the layout 'per-layer'"
            )
