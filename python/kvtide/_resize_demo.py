"""What ``python -m kvtide.state_transition`` prints: a state that grows and shrinks, as arrays and in place."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

import numpy as np

from kvtide import _arrays
from kvtide._resize import compact_kv_state, transition_kv_state

SHAPE = (36, 1, 256, 256)  # Gemma-3-270M: 18 layers, keys then values, one KV head of 256
POSITIONS = 200
LARGER = 512
RUNS = 21


def main() -> None:
    state = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32).astype(np.float16)
    state[:, :, POSITIONS:] = np.nan  # stale rows: nothing of them may survive
    expanded, expand_time = _timed(lambda: transition_kv_state(state, LARGER, POSITIONS))
    compacted, compact_time = _timed(lambda: compact_kv_state(expanded, SHAPE[2], POSITIONS))

    print(f"A KV state in float16, {POSITIONS} positions in use, grows and shrinks again")
    print(f"(copies by {'the native extension' if _arrays._native else 'NumPy'}, median of {RUNS})\n")
    _line("before", state, None)
    _line("expanded", expanded, expand_time)
    _line("compacted", compacted, compact_time)
    print()
    for name, array in (("expanded", expanded), ("compacted", compacted)):
        _check(name, state, array)
    if _arrays._native is None:
        print("\nThe native extension is not built, so there is no live state to resize in place.")
    else:
        _live(state)


def _live(array: np.ndarray) -> None:
    """The same transitions of a live KV memory of that shape."""
    from kvtide.state import State

    rows, kv_heads, capacity, head_dim = array.shape
    live = State(layers=rows // 2, kv_heads=kv_heads, head_dim=head_dim, capacity=capacity)
    live.write("kv_cache", array, position=POSITIONS)
    keys = live.keys(0)
    address = keys.ctypes.data
    times: dict[str, list[float]] = {"expand": [], "compact": []}
    for _ in range(RUNS):
        start = time.perf_counter()
        live.expand(LARGER)
        times["expand"].append(time.perf_counter() - start)
        expanded = live.read("kv_cache")
        start = time.perf_counter()
        live.compact(capacity)
        times["compact"].append(time.perf_counter() - start)
    compacted = live.read("kv_cache")
    print("\nThe same transitions of a live state: in place, nothing is copied\n")
    _line("before", array, None)
    _line("expanded", expanded, statistics.median(times["expand"]))
    _line("compacted", compacted, statistics.median(times["compact"]))
    print()
    for name, now in (("expanded", expanded), ("compacted", compacted)):
        _check(name, array, now)
    moved = live.keys(0).ctypes.data != address
    print(f"rows stayed where they are: {_yes(not moved)}")
    print(live)


def _check(name: str, before: np.ndarray, now: np.ndarray) -> None:
    prefix = before[:, :, :POSITIONS].tobytes() == now[:, :, :POSITIONS].tobytes()
    tail = not np.any(now[:, :, POSITIONS:])
    print(f"{name + ':':12}prefix equal: {_yes(prefix)}   tail zero: {_yes(tail)}")


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return result, statistics.median(times)


def _line(name: str, array: np.ndarray, seconds: float | None) -> None:
    took = "" if seconds is None else f"{seconds * 1e6:10.1f} us"
    print(f"{name + ':':12}{str(list(array.shape)):20}{array.nbytes / 2**20:6.2f} MB{took}")


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
