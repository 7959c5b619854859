"""How many bytes a session uses, as numbers and as a picture."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtide import _picture


class _Bytes(NamedTuple):
    weights: int
    kv: int
    scratch: int


class MemoryUse(_Bytes):
    """Bytes at one moment. ``weights`` are shared by the sessions of a model; ``kv`` is the KV memory; ``scratch`` is
    what computing needs beside it."""

    _title = "KV memory"
    _bars: list[_picture.Bar]

    def plot(self, ax: Any = None) -> Any:
        """Draws the memory as it was at that moment, and gives the matplotlib Axes; ``ax``: draw into these. Raises
        ModuleNotFoundError without matplotlib."""
        return _picture.plotted(self._drawn(), self._title, ax)

    def _repr_html_(self) -> str:
        return _picture.as_html(repr(self), self._drawn())

    def _drawn(self) -> list[_picture.Bar]:
        return self.__dict__.get("_bars") or [_picture.bytes_bar(self.kv, 0, 0, "")]


def memory_use(sizes: tuple[int, int, int], title: str, bars: list[_picture.Bar]) -> MemoryUse:
    """With what its picture shows."""
    use = MemoryUse(*sizes)
    use._title, use._bars = title, bars
    return use


def bars_of(numbers: tuple[Any, ...], procedural: dict[str, Any] | None) -> list[_picture.Bar]:
    """``numbers``: those of a native state. ``procedural``: what ``Session.procedural`` tells."""
    position, rows, _, room, held, shared, capacity_bytes, _, budget = numbers
    if budget is None:
        return [_picture.bytes_bar(held, shared, capacity_bytes, ""), _picture.tokens_bar(position, rows, room)]
    bars = [_picture.bytes_bar(held, shared, budget, " (the budget)")]
    if procedural is not None:
        bars.append(_picture.rows_bar(procedural["rows"]))
    return bars
