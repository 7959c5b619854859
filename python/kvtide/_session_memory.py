"""What a session holds: its KV memory, seen and changed as a whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterator

import numpy as np

from kvtide import _native, _picture
from kvtide._arguments import file_path, size_text, whole
from kvtide._checks import integer
from kvtide._closing import Closing
from kvtide._loaded import LoadedModel
from kvtide._options import Progress, progress_option
from kvtide._progress import reading
from kvtide.errors import BusyError, CancelledError, ClosedError
from kvtide.memory import MemoryUse, bars_of, memory_use
from kvtide.state import State, TransitionPlan, TransitionRecord

if TYPE_CHECKING:
    from typing_extensions import Self


class SessionMemory(Closing):
    """The part of ``kvtide.Session`` that needs no text: what it holds, files, forks, numbers."""

    _kind = "session"
    _native: _native.Session
    _model: LoadedModel
    _name: str

    @property
    def state(self) -> State:
        """The KV memory, live: look at it, resize it, fork it (see ``kvtide.State``)."""
        self._check_open()
        return State._wrap(_native.State.of(self._native))

    @property
    def attention_size(self) -> int | None:
        """Newest positions that a query sees; None: all. ``session.state.set_attention_size`` changes it."""
        self._check_open()
        return self._native.attention_size

    @property
    def tokens(self) -> np.ndarray:
        """Ids of the tokens held, int32: a copy."""
        return self._native.tokens()

    def plan(self, name: str, *args: Any, **kwargs: Any) -> TransitionPlan:
        """What a transition of the memory would do, or why it cannot: ``session.plan("compact", 256)``."""
        return self.state.plan(name, *args, **kwargs)

    def apply(self, name: str, *args: Any, **kwargs: Any) -> TransitionRecord:
        """Changes the memory: ``session.apply("expand", 4096)`` is ``session.state.expand(4096)``."""
        return self.state.apply(name, *args, **kwargs)

    def truncate(self, length: int, *, progress: Progress = None) -> TransitionRecord:
        """Takes back the newest tokens, so that ``length`` remain, in memories of every kind.

        Where a window has moved on, or what layers carry from token to token was not kept, the tokens behind the nearest
        checkpoint are read again: ``read_again`` of the record is their number. The bits are those of a session that never
        went further. There are no logits then: read a token to have some.
        """
        self._check_open()
        with reading(progress_option(progress, "progress")) as heard:
            return TransitionRecord(*self._native.truncate(integer(length, "length"), heard))

    def checkpoint(self) -> bool:
        """Makes a checkpoint behind the newest token, where ``truncate`` can go back to. False: ``checkpoint_budget`` has no
        room for one, or such a memory cannot have one (summaries of the past; positions that were dropped)."""
        self._check_open()
        return self._native.checkpoint()

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Positions of the checkpoints, ascending."""
        self._check_open()
        return tuple(self._native.checkpoints())

    def fork(self) -> Self:
        """A second session with the same text, options and logits; the rows are shared until one of the two writes."""
        other = type(self).__new__(type(self))
        other._native, other._model, other._name = self._native.fork(), self._model, self._name
        self._forked(other)
        return other

    def _forked(self, other: Self) -> None:
        """Takes over what else there is."""

    def save(self, path: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None) -> None:
        """Writes the memory as a snapshot, atomically, without holding the GIL. ``cache``: a folder that remembers the
        model's hash between runs."""
        self._native.save(file_path(path), b"" if cache is None else file_path(cache))

    def load(self, path: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None) -> None:
        """Goes on from a snapshot, with the same bits as the session that saved it. One of another model, and a
        damaged one, is refused and changes nothing."""
        self._native.load(file_path(path), b"" if cache is None else file_path(cache))

    def restore(self, state: State) -> None:
        """Goes on from a copy of the state, which shares its rows, instead of this session's memory."""
        if not isinstance(state, State):
            raise TypeError(f"state must be a kvtide.State, not {type(state).__name__}")
        self._native.restore(state._native)

    def clear(self) -> None:
        """Forgets the text and gives its memory back."""
        self._native.clear()

    def cancel(self) -> None:
        """Ends the call or the generation in progress, from any thread. Without one, does nothing."""
        self._native.cancel()

    @property
    def position(self) -> int:
        """Tokens held."""
        self._check_open()
        return self._native.position

    @property
    def context(self) -> int:
        """Tokens that fit. A memory with a budget and a rolling one never fill up."""
        self._check_open()
        return self._native.context

    @property
    def model(self) -> LoadedModel:
        """The ``kvtide.Model`` that it was made from."""
        return self._model

    @property
    def memory(self) -> MemoryUse:
        """Bytes in use, now. ``session.memory.plot()`` draws them."""
        self._check_open()
        return memory_use(self._native.memory, self._title(), self._bars())

    @property
    def nbytes(self) -> int:
        """Bytes of the KV memory."""
        return self.memory.kv

    @property
    def procedural(self) -> dict[str, Any] | None:
        """What a procedural memory holds and has done: rows by kind, seals, consolidations, peak bytes; None for others."""
        self._check_open()
        return self._native.procedural()

    def pin(self, first: int, last: int) -> None:
        """Keeps positions [first, last) exact in every head for good. Of a procedural memory, and before they are sealed."""
        self._check_open()
        self._native.pin(whole(first, "first"), whole(last, "last", 1))

    @property
    def options(self) -> dict[str, Any]:
        """What the session was made with, defaults filled in."""
        self._check_open()
        names = (
            "context", "exact", "key_type", "value_type", "threads", "prefill_chunk", "rolling", "attention_size", "slack",
            "checkpoint_every", "checkpoint_budget",
        )  # fmt: skip
        return {name: getattr(self._native, name) for name in names}

    @property
    def busy(self) -> bool:
        """True while a call is in progress."""
        return self._native.busy

    def __len__(self) -> int:
        return self.position

    def __iter__(self) -> Iterator[int]:
        """Ids of the tokens held, oldest first."""
        return iter(self.tokens.tolist())

    def __bool__(self) -> bool:
        return True  # an empty session is a session

    def __repr__(self) -> str:
        types = {self._native.key_type, self._native.value_type}
        try:
            held = self._held()
        except ClosedError:  # also by another thread, just now
            return f"<kvtide.Session on {self._name!r}, closed>"
        return f"<kvtide.Session on {self._name!r}: {held} in {'/'.join(sorted(types))}{', busy' if self.busy else ''}>"

    def _held(self) -> str:
        *_, budget = _native.State.of(self._native).numbers
        held, used = f"{self.position} tokens", f"{size_text(self.nbytes)} of KV memory"
        if budget is not None:  # however long the text
            return f"{held}, {used}" + (f", at most {size_text(budget)}," if budget else "")
        if self._native.rolling is not None:
            return "{}, the first {} and the newest {} held, {}".format(held, *self._native.rolling, used)
        return f"{self.position} of {self.context} tokens, {used}"

    def _repr_html_(self) -> str:
        try:
            return _picture.as_html(repr(self), self._bars())
        except ClosedError:
            return _picture.as_html(repr(self), [])

    def _title(self) -> str:
        return f"KV memory of {self._name}"

    def _bars(self) -> list[_picture.Bar]:
        numbers = _native.State.of(self._native).numbers
        try:
            procedural = self._native.procedural()
        except (BusyError, CancelledError):  # who computes now says how much is held, but not what for
            procedural = None
        return bars_of(numbers, procedural)
