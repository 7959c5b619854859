"""A KV memory: what a model has read, as something to hold, look at, resize and carry."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from kvtide import _layouts, _native, _picture
from kvtide._arguments import file_path, size_text, string, token_ids, whole
from kvtide._checks import integer
from kvtide._closing import Closing
from kvtide._layouts import Layer as Layer
from kvtide._options import check_names, rolling_of
from kvtide._state_arrays import read_array, rows_of, write_arrays
from kvtide.errors import ClosedError, InvalidArgumentError
from kvtide.memory import bars_of

if TYPE_CHECKING:
    from kvtide._native import State as NativeState


class TransitionRecord(NamedTuple):
    """What a transition did, or, in a plan, what it would do."""

    name: str
    position: int
    rows_kept: int
    rows_dropped: int
    capacity_before: int
    capacity_after: int
    bytes_before: int
    bytes_after: int
    milliseconds: float
    read_again: int = 0  # of a truncate to the nearest: tokens that are missing up to its length

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.rows_kept} rows kept"]
        if self.read_again:
            parts.append(f"{self.read_again} tokens to be read again")
        if self.rows_dropped:
            parts.append(f"{self.rows_dropped} dropped")
        if self.capacity_before != self.capacity_after:
            parts.append(f"capacity {self.capacity_before} -> {self.capacity_after}")
        if self.bytes_before != self.bytes_after:
            parts.append(f"{size_text(self.bytes_before)} -> {size_text(self.bytes_after)}")
        return ", ".join(parts) + f" ({self.milliseconds * 1000:.0f} us)"


class TransitionPlan(NamedTuple):
    """What a transition would do, or why it cannot be made. True when it can."""

    refusal: str
    expected: TransitionRecord

    def __bool__(self) -> bool:
        return not self.refusal


class Policy(NamedTuple):
    """How a state keeps its rows: everything up to ``capacity``, sinks and a window, or, where ``budget`` is not None, old
    tokens as summaries."""

    capacity: int
    attention_size: int | None
    rolling: tuple[int, int] | None
    slack: int
    windows: tuple[int | None, ...]
    budget: int | None = None  # see State.budget

    def __str__(self) -> str:
        keeps = "keeps everything" if self.rolling is None else "keeps {} sinks and the newest {}".format(*self.rolling)
        local = sum(window is not None for window in self.windows)
        parts = [f"{keeps}, up to {self.capacity} rows"]
        if self.budget is not None:
            parts = ["keeps old tokens as summaries and exact outliers"]
        if self.budget:
            parts[0] += f", in at most {size_text(self.budget)}"
        if local:
            parts.append(f"{local} of {len(self.windows)} layers see a window only")
        if self.attention_size is not None:
            parts.append(f"queries see the newest {self.attention_size}")
        return "; ".join(parts)


class State(Closing):
    """A KV memory. ``session.state`` is the live memory of a session; ``State.load`` and ``State(...)`` make others.

    Every change is refused with a reason and changes nothing, or succeeds in all layers and gives a TransitionRecord.
    ``keys`` and ``values`` are read-only arrays that look into the memory: while one lives, what would take its rows
    away raises a ViewedError, which is a BufferError; appending is always allowed. Closing lets go of the memory: that of
    a session stays with it, and arrays keep what they look at.
    """

    _kind = "state"
    _native: NativeState

    def __init__(
        self,
        *,
        layers: int | Sequence[Any],
        kv_heads: int | None = None,
        head_dim: int | None = None,
        capacity: int,
        key_type: str = "f16",
        value_type: str | None = None,
        rolling: tuple[int, int] | None = None,
        slack: int = 0,
        rotary: bool = True,
    ) -> None:
        """An empty memory. ``layers``: their number, with ``kv_heads`` and ``head_dim`` for all of them; or one
        ``(kv_heads, head_dim, window or None)`` for each. ``rotary=False``: keys know absolute positions, so that gaps
        cannot be closed.
        """
        key_type = string(key_type, "key_type")
        self._shape = (
            _layers_of(layers, kv_heads, head_dim),
            key_type,
            key_type if value_type is None else string(value_type, "value_type"),
            whole(slack, "slack"),
            rolling_of(rolling),
            bool(rotary),
        )
        self._native = _made(self._shape, whole(capacity, "capacity", 1), 0, [], False)

    @classmethod
    def _wrap(cls, native: Any) -> State:
        self = cls.__new__(cls)
        self._native = native
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> State:
        """A snapshot, checked as a whole before there is a state. Does not hold the GIL."""
        return cls._wrap(_native.State.load(file_path(path)))

    def save(self, path: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None) -> None:
        """Writes a snapshot, atomically, without holding the GIL. ``cache``: a folder that remembers the model's hash
        between runs."""
        self._native.save(file_path(path), b"" if cache is None else file_path(cache))

    # What it is.

    @property
    def position(self) -> int:
        """Of the next token."""
        return self._native.numbers[0]

    @property
    def rows(self) -> int:
        """Positions held, by the layer that holds most."""
        return self._native.numbers[1]

    @property
    def capacity(self) -> int:
        """Rows it may hold."""
        return self._native.numbers[2]

    @property
    def room(self) -> int:
        """Rows that are free."""
        return self._native.numbers[3]

    @property
    def nbytes(self) -> int:
        """Bytes of the pages of the rows held."""
        return self._native.numbers[4]

    @property
    def shared_nbytes(self) -> int:
        """Of these, shared with forks."""
        return self._native.numbers[5]

    @property
    def capacity_nbytes(self) -> int:
        """Bytes when it is full."""
        return self._native.numbers[6]

    @property
    def attention_size(self) -> int | None:
        """Newest positions that a query sees; None: all."""
        return self._native.numbers[7]

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(Layer(*layer) for layer in self._native.shape[0])

    @property
    def key_type(self) -> str:
        """'f16', 'f32', 'q8_0' or 'q4_0'."""
        return self._native.shape[1]

    @property
    def value_type(self) -> str:
        return self._native.shape[2]

    @property
    def budget(self) -> int | None:
        """Bytes that a procedural memory never exceeds; 0: it has no budget. None for other memories."""
        return self._native.numbers[8]

    @property
    def policy(self) -> Policy:
        _, _, _, slack, rolling, _ = self._native.shape
        windows = tuple(layer.window for layer in self.layers)
        return Policy(self.capacity, self.attention_size, rolling, slack, windows, self.budget)

    @property
    def names(self) -> tuple[str, ...]:
        """Every array that ``read`` gives, of all layouts."""
        layers = self.layers
        return tuple(name for layout in _layouts.LAYOUTS for name in _layouts.names_in(layout, layers))

    @property
    def tokens(self) -> np.ndarray:
        """Ids of the tokens read, int32; empty when nobody said which they are."""
        return np.array(self._native.tokens(), np.int32)

    @property
    def identity(self) -> dict[str, str]:
        """What a loaded state belongs to: hashes of a model and its tokenizer."""
        return self._native.identity()

    @property
    def live(self) -> bool:
        """True for the memory of a session."""
        return self._native.live

    @property
    def views(self) -> int:
        """Arrays that look into it."""
        return self._native.views

    # What can be done to it.

    def plan(self, name: str, *args: Any, **kwargs: Any) -> TransitionPlan:
        """What ``expand``, ``compact``, ``truncate``, ``drop`` or ``set_attention_size`` would do, or why it cannot:
        ``state.plan("compact", 256)``."""
        refusal, expected = self._native.plan(*_transition(name, args, kwargs))
        return TransitionPlan(refusal, TransitionRecord(*expected))

    def expand(self, capacity: int) -> TransitionRecord:
        """Raises the number of rows it may hold. Copies nothing."""
        return self._apply("expand", capacity)

    def compact(self, capacity: int) -> TransitionRecord:
        """Lowers it; refused when more rows are in use."""
        return self._apply("compact", capacity)

    def truncate(self, length: int, *, nearest: bool = False) -> TransitionRecord:
        """Takes back the newest positions, so that ``length`` remain. ``nearest``: where that cannot be done, the nearest
        checkpoint before it remains, or nothing; ``read_again`` of the record says how many tokens are missing."""
        return self._apply("truncate", length, nearest=nearest)

    def drop(self, first: int, last: int, *, close_gap: bool = False) -> TransitionRecord:
        """Removes positions ``first`` up to, and without, ``last``. ``close_gap``: older rows move nearer to the
        reader, as if the removed text had never stood between."""
        return self._apply("drop", first, last, close_gap=close_gap)

    def set_attention_size(self, size: int | None) -> TransitionRecord:
        """Newest positions that a query sees, its own included; None: all. Changes no row."""
        return self._apply("set_attention_size", size)

    def fork(self) -> State:
        """A second state with the same contents, which share their rows until one of the two is written to."""
        return State._wrap(self._native.fork())

    def apply(self, name: str, *args: Any, **kwargs: Any) -> TransitionRecord:
        """A transition by its name, as ``plan`` takes it."""
        return self._apply(name, *args, **kwargs)

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> TransitionRecord:
        return TransitionRecord(*self._native.apply(*_transition(name, args, kwargs)))

    # Its rows as arrays.

    def keys(self, layer: int, *, copy: bool | None = None) -> np.ndarray:
        """The keys of a layer, oldest first, read-only ``[kv_heads, rows, head_dim]``: an array that looks into the
        memory, without a copy. Rows that lie in several pieces (of a fork, behind a gap) and rows in q8_0 can only be
        copied; ``copy=False`` raises a ValueError then, ``copy=True`` always copies. ``positions(layer)`` says which
        positions they are."""
        return rows_of(self._native, self.layers, layer, True, copy)

    def values(self, layer: int, *, copy: bool | None = None) -> np.ndarray:
        """The values of a layer; otherwise as ``keys``."""
        return rows_of(self._native, self.layers, layer, False, copy)

    def positions(self, layer: int) -> np.ndarray:
        """The positions that a layer holds, ascending."""
        runs = self._native.runs(whole(layer, "layer", 0, len(self.layers) - 1))
        return np.concatenate([np.arange(*run) for run in runs]) if runs else np.empty(0, np.int64)

    def read(
        self, name: str, *, capacity: int | None = None, dtype: Any = None, exact_only: bool = False
    ) -> np.ndarray:
        """An array that another runtime understands, as a copy: ``"kv_cache"``, ``"k_cache"``, ``"keyCache"``; see
        ``names``. ``capacity``: its rows (None: those of the state); unused ones are zeros. ``dtype``: None for the
        state's own, with float32 for q8_0.

        A state that holds more than such arrays can say (dropped or moved positions, a window that has moved on) is
        refused, unless ``exact_only`` asks for the newest positions that are as they were written.
        """
        capacity = self.capacity if capacity is None else whole(capacity, "capacity")
        return read_array(self._native, self.layers, string(name, "name"), capacity, dtype, bool(exact_only))

    def arrays(
        self, layout: str = "unified", *, capacity: int | None = None, dtype: Any = None, exact_only: bool = False
    ) -> dict[str, np.ndarray]:
        """All arrays of a layout by name: "unified", "split", "per-layer" or "stacked". Options as for ``read``."""
        names = _layouts.names_in(string(layout, "layout"), self.layers)
        return {name: self.read(name, capacity=capacity, dtype=dtype, exact_only=exact_only) for name in names}

    def carried(self) -> dict[str, np.ndarray]:
        """What the layers of some models carry from token to token beside rows, by name, as read-only float32 copies: for
        ZAYA1 ``layers.3.conv_state`` ``[channels, 2]`` and ``layers.3.prev_value``. Empty for most models."""
        return {
            name: np.frombuffer(values, np.float32).reshape(shape) for name, shape, values in self._native.carried
        }

    def write(
        self,
        arrays: Mapping[str, Any] | str,
        value: Any = None,
        *,
        position: int | None = None,
        tokens: Any = None,
    ) -> None:
        """Replaces all rows with those of a layout's arrays: ``write("kv_cache", array, position=200)`` or
        ``write({"keyCache": k, "valueCache": v, "pastLen": [200]})``.

        ``position``: how many rows are in use (None: what pastLen says, or as many as now). ``tokens``: their ids; a
        session needs them to know its text, unless the position stays as it is. The rows are checked before anything
        is changed; NaN and infinity are refused. There are no logits afterwards: read a token to have some.
        """
        given = {arrays: value} if isinstance(arrays, str) else arrays
        if not isinstance(given, Mapping) or (value is not None and not isinstance(arrays, str)):
            raise TypeError("give a name and an array, or a dictionary of arrays by name")
        given = {string(name, "the name of an array"): array for name, array in given.items()}
        ids = None if tokens is None else token_ids(tokens).tolist()
        count = None if position is None else whole(position, "position")
        write_arrays(self._native, self.layers, given, count, ids, _made)

    # The same for whoever moves the states of objects (kvtide.state_transition, Core ML).

    @property
    def state_names(self) -> list[str]:
        return ["kv_cache"]

    def read_state(self, *, name: str) -> np.ndarray:
        return self.read(name)

    def write_state(self, *, name: str, value: Any) -> None:
        self.write(name, value)

    # Manners.

    def __iter__(self) -> Iterator[int]:
        """Token ids, oldest first."""
        return iter(self._native.tokens())

    def __reduce__(self) -> Any:
        raise TypeError("a KV memory is not copied by accident: use fork() or save()")

    def __len__(self) -> int:
        return self.position

    def __bool__(self) -> bool:
        return True  # an empty state is a state

    def _check_open(self) -> None:
        self._native.numbers  # noqa: B018  says what was closed: the state, or the session that it is of

    def __repr__(self) -> str:
        try:
            return f"<kvtide.State{', live' if self.live else ''}: {', '.join(self._facts())}>"
        except ClosedError:  # also by another thread, just now
            return "<kvtide.State, closed>"

    def _repr_html_(self) -> str:
        try:
            return _picture.as_html(repr(self), bars_of(self._native.numbers, None))
        except ClosedError:
            return _picture.as_html(repr(self), [])

    def _facts(self) -> list[str]:
        layers, key_type, value_type, *_ = self._native.shape
        types = key_type if key_type == value_type else f"{key_type}/{value_type}"
        budget = self.budget
        of, most = (f" of {self.capacity}", size_text(self.capacity_nbytes)) if budget is None else ("", "")
        if budget:
            most = f"at most {size_text(budget)}"
        parts = [
            f"{self.position} tokens" + (f" ({self.rows} held)" if self.rows != self.position else "") + of,
            size_text(self.nbytes) + (f" of {most}" if most else "") + f" in {types}",
            f"{len(layers)} layers" if len(layers) != 1 else "1 layer",
        ]
        if self.shared_nbytes:
            parts.append(f"{size_text(self.shared_nbytes)} shared")
        if self.attention_size is not None:
            parts.append(f"sees the newest {self.attention_size}")
        if self.views:
            parts.append(f"{self.views} {'array looks' if self.views == 1 else 'arrays look'} into it")
        return parts


def _layers_of(layers: Any, kv_heads: Any, head_dim: Any) -> list[tuple[int, int, int | None]]:
    small = 2**31 - 1
    if kv_heads is not None or head_dim is not None:
        count = whole(layers, "layers", 1, 65536)
        return [(whole(kv_heads, "kv_heads", 1, small), whole(head_dim, "head_dim", 1, small), None)] * count
    if isinstance(layers, int) or not isinstance(layers, Sequence):
        raise TypeError("layers must be a number, with kv_heads and head_dim, or a list of (kv_heads, head_dim, window)")
    made = []
    for i, layer in enumerate(layers):
        if not isinstance(layer, Sequence) or len(layer) != 3:
            raise TypeError(f"layers[{i}] must be (kv_heads, head_dim, window or None), not {layer!r}")
        heads, width, window = layer
        made.append((
            whole(heads, "kv_heads", 1, small),
            whole(width, "head_dim", 1, small),
            None if window is None else whole(window, "window", 1),
        ))  # fmt: skip
    return made


def _made(shape: Any, capacity: int, position: int, tokens: list[int], windows_only: bool) -> Any:
    layers, key_type, value_type, slack, rolling, rotary = shape
    return _native.State(
        list(layers), key_type, value_type, capacity, slack, rolling, rotary, position, tokens, windows_only
    )


_TRANSITIONS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "expand": lambda capacity: ("expand", _number(capacity, "capacity")),
    "compact": lambda capacity: ("compact", _number(capacity, "capacity")),
    "truncate": lambda length, *, nearest=False: (
        "truncate to the nearest" if nearest else "truncate", _number(length, "length"),
    ),
    "drop": lambda first, last, *, close_gap=False: (
        "drop", _number(first, "first"), _number(last, "last"), bool(close_gap),
    ),
    "set_attention_size": lambda size: ("attention", None if size is None else _number(size, "size")),
}  # fmt: skip


def _transition(name: Any, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """As the native module takes it."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {name!r}")
    if name not in _TRANSITIONS:
        raise InvalidArgumentError(f"there is no transition {name!r}; there are {', '.join(_TRANSITIONS)}")
    make = _TRANSITIONS[name]
    check_names(options, list(inspect.signature(make).parameters))
    return make(*args, **options)


def _number(value: Any, name: str) -> int:
    """An integer that the native module can hold; whether it makes sense is for the state to say."""
    return max(-(2**62), min(2**62, integer(value, name)))
