"""A text being read and continued, with the KV memory in between."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import numpy as np

from kvtide import _native
from kvtide._arguments import callback, file_path, size_text, string, token_ids, utf8, whole
from kvtide.errors import ClosedError, InvalidArgumentError
from kvtide.generation import Completion, Generation, sampler_options, stop_options
from kvtide.model import Model
from kvtide.state import State, TransitionPlan, TransitionRecord, rolling_of

Progress = Callable[[int, int], Any]


class MemoryUse(NamedTuple):
    """Bytes. ``weights`` are shared by the sessions of a model."""

    weights: int
    kv: int
    scratch: int


class Session:
    """One text: tokens in, logits out. Serves one caller at a time; a second one gets a BusyError.

    Long calls give up the GIL, listen to Ctrl-C and to ``cancel()`` between chunks, and call ``progress(read, of)``
    after each chunk: an exception that it raises comes out of the call, and False ends it with a CancelledError. After
    any error the session holds exactly the tokens of the chunks that were complete.
    """

    def __init__(
        self,
        model: Model,
        *,
        context: int | None = None,
        exact: bool = False,
        key_type: str = "f16",
        value_type: str = "f16",
        threads: int | None = None,
        prefill_chunk: int = 512,
        kernels: str | None = None,
        rolling: tuple[int, int] | None = None,
        attention_size: int | None = None,
        slack: int = 0,
        procedural: dict[str, Any] | None = None,
    ) -> None:
        """What changes results: ``context``, the tokens that fit (None: what the model was trained for); ``exact``, f32
        activations in every matrix product; ``key_type`` and ``value_type`` of the KV memory, "f16", "f32" or "q8_0";
        ``rolling=(sinks, window)``, to forget all but the first and the newest tokens and never fill up;
        ``attention_size``, newest positions that a query sees (None: all that are held). ``slack``: newest tokens that
        can be taken back also where a window has moved on. ``procedural``, to keep the past as summaries and exact
        outliers inside a budget, for texts of any length: a dict of ``budget`` (bytes that are never exceeded),
        ``budget_for`` (tokens that will be read), ``sinks``, ``window``, ``block``, ``rows`` (of a block, on average over
        all heads), ``summaries``, ``levels``, ``full_rows``, ``full_type`` (of these: "f16", "q8_0" or "q4_0"), ``half_precision``
        (old rows as f16), ``summary``, ``score``, ``far``, ``adapt``, ``first_layer`` and ``last_layer`` (of those that
        are compressed), ``pins`` (pairs of positions, the second not included), ``level_rows``, ``shed_below``,
        ``decay``, ``retention``, ``spill`` (a path), ``kv_heads``, ``heads`` (per layer and KV head: induction, share,
        output norm) and ``full_from`` (the induction from which on a head copies); what is left out is filled in.

        What changes speed only: ``threads`` (None: as many as the machine has), ``prefill_chunk`` in tokens, and
        ``kernels``, "avx512_bf16", "avx512", "avx2" or "scalar" (None: the best that the processor has).
        """
        if not isinstance(model, Model):
            raise TypeError(f"model must be a kvtide.Model, not {type(model).__name__}")
        self._model = model
        self._native = _native.Session(
            model._native,
            context=0 if context is None else whole(context, "context", 1),
            exact=bool(exact),
            key_type=string(key_type, "key_type"),
            value_type=string(value_type, "value_type"),
            threads=0 if threads is None else whole(threads, "threads", 1, 256),
            prefill_chunk=whole(prefill_chunk, "prefill_chunk", 1),
            kernels="" if kernels is None else string(kernels, "kernels"),
            rolling=rolling_of(rolling),
            attention_size=None if attention_size is None else whole(attention_size, "attention_size", 1),
            slack=whole(slack, "slack"),
            procedural=None if procedural is None else dict(procedural),
        )
        self._name = model.name

    @classmethod
    def _wrap(cls, native: Any, model: Model, name: str) -> Session:
        self = cls.__new__(cls)
        self._native, self._model, self._name = native, model, name
        return self

    def read(self, text: Any, *, special: bool = True, progress: Progress | None = None) -> int:
        """Appends a text, or token ids (a list or an integer array), and gives the number of tokens.

        A text that starts the session gets what the vocabulary puts in front; ``special=False`` reads markers such as
        ``<|im_end|>`` as plain text. Raises ContextFullError before anything is read when it does not fit.
        """
        ids = self._ids(text, special)
        self._native.read(ids, callback(progress, "progress"))
        return len(ids)

    def read_logits(self, text: Any, *, special: bool = True, progress: Progress | None = None) -> np.ndarray:
        """The same; gives the logits after every token, float32 ``[tokens, vocabulary]``."""
        ids = self._ids(text, special)
        rows = np.empty((len(ids), self._model.vocabulary), np.float32)
        self._native.read_logits(ids, rows, callback(progress, "progress"))
        return rows

    def score(self, text: Any, *, special: bool = True, progress: Progress | None = None) -> np.ndarray:
        """The same; gives the log-probability of every token given all before it, float64 ``[tokens]``.

        NaN for the first token of a session, which has nothing before it.
        """
        ids = self._ids(text, special)
        result = np.empty(len(ids), np.float64)
        self._native.score(ids, result, callback(progress, "progress"))
        return result

    def generate(
        self,
        prompt: Any = None,
        *,
        max_tokens: int = -1,
        stop: str | Sequence[str] = (),
        stop_tokens: Any = (),
        temperature: float = 0.0,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        repeat_last: int = 64,
        seed: int = 0,
        history: Any = None,
        progress: Progress | None = None,
    ) -> Generation:
        """Reads the prompt, if there is one, and gives an iterator over the continuation.

            for piece in session.generate("Once upon a time", max_tokens=64):
                print(piece, end="", flush=True)

        Each piece has ``token``, ``text`` and ``log_probability``; the iterator collects ``text`` and ``tokens`` and
        says why it ended in ``reason``. It computes as it is asked: leaving the loop early costs nothing, and every
        token that was handed out is part of the session. ``temperature=0`` always takes the most likely token.
        ``max_tokens=-1``: until the text ends. ``stop`` strings end the answer and are not part of it. ``history``:
        tokens that the repeat penalty sees from the start (None: those of the prompt).
        """
        sampler = sampler_options(temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed)
        limits = stop_options(max_tokens, stop, stop_tokens)
        recent = self._read_prompt(prompt, history, progress)
        return Generation(self, sampler, limits, recent)

    def complete(
        self,
        prompt: Any = None,
        *,
        max_tokens: int = -1,
        stop: str | Sequence[str] = (),
        stop_tokens: Any = (),
        temperature: float = 0.0,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        repeat_last: int = 64,
        seed: int = 0,
        history: Any = None,
        progress: Progress | None = None,
        on_text: Callable[[str], Any] | None = None,
    ) -> Completion:
        """``generate`` in one call that holds the GIL for no token: gives the text, the tokens and the reason.

        ``on_text`` receives the text as it comes; False ends the answer, an exception comes out of here.
        """
        sampler = sampler_options(temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed)
        limits = stop_options(max_tokens, stop, stop_tokens)
        callback(on_text, "on_text")
        recent = self._read_prompt(prompt, history, progress)
        tokens, text, reason = self._native.generate(
            limits.max_tokens, limits.stop, limits.stop_tokens, sampler, recent, on_text
        )
        return Completion(text, tokens, reason)

    @property
    def logits(self) -> np.ndarray:
        """Logits after the last token, float32 ``[vocabulary]``: a copy, which stays as it is."""
        logits = self._native.logits()
        if logits.size == 0:
            why = "nothing was read yet" if self.position == 0 else "positions were taken back or replaced"
            raise InvalidArgumentError(f"{why}, so there are no logits; read a token to have some")
        return logits

    def log_probabilities(self) -> np.ndarray:
        """Log-probability of every token of the vocabulary to come next, float64."""
        logits = self.logits.astype(np.float64)
        logits -= logits.max()
        return logits - np.log(np.exp(logits).sum())

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

    def fork(self) -> Session:
        """A second session with the same text, options and logits; the rows are shared until one of the two writes."""
        return Session._wrap(self._native.fork(), self._model, self._name)

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
        """Tokens that fit."""
        self._check_open()
        return self._native.context

    @property
    def model(self) -> Model:
        return self._model

    @property
    def memory(self) -> MemoryUse:
        """Bytes in use."""
        self._check_open()
        return MemoryUse(*self._native.memory)

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
        )  # fmt: skip
        return {name: getattr(self._native, name) for name in names}

    @property
    def busy(self) -> bool:
        """True while a call is in progress."""
        return self._native.busy

    @property
    def closed(self) -> bool:
        return self._native.closed

    def close(self) -> None:
        """Gives all memory and threads back. Closing twice is fine."""
        self._native.close()

    def __enter__(self) -> Session:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
            held = f"{self.position} of {self.context} tokens, {size_text(self.nbytes)} of KV memory"
        except ClosedError:  # also by another thread, just now
            return f"<kvtide.Session on {self._name!r}, closed>"
        return f"<kvtide.Session on {self._name!r}: {held} in {'/'.join(sorted(types))}{', busy' if self.busy else ''}>"

    def _check_open(self) -> None:
        if self._native.closed:
            raise ClosedError("this session was closed")

    def _ids(self, text: Any, special: bool) -> np.ndarray:
        self._check_open()
        if not isinstance(text, str):
            return token_ids(text)
        continues = self._native.position > 0
        return np.array(self._model._native.encode(utf8(text), None, bool(special), continues), np.int32)

    def _read_prompt(self, prompt: Any, history: Any, progress: Progress | None) -> list[int]:
        """Tokens that the repeat penalty sees."""
        self._check_open()
        recent = None if history is None else token_ids(history).tolist()
        callback(progress, "progress")
        if prompt is None:
            return recent or []
        ids = self._ids(prompt, True)
        self._native.read(ids, progress)
        return ids.tolist() if recent is None else recent
