"""Several sessions of one model in one pass over its weights."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple

from kvtide import _native
from kvtide._arguments import string, token_ids, whole
from kvtide._closing import Closing
from kvtide._loaded import LoadedModel
from kvtide.errors import BY_CODE, Error, InvalidArgumentError
from kvtide.session import Session


class Outcome(NamedTuple):
    """What became of one session in a step."""

    read: int  # tokens; fewer than were given where ``prefill_chunk`` or the next seal of a memory ends a step
    error: Error | None  # the session is then as it was


class Batch(Closing):
    """Reads and writes several texts at once: one pass reads the weights once for all of them.

        with model.batch() as batch:
            sessions = [model.session() for _ in prompts]
            for session, prompt in zip(sessions, prompts):
                session.read(prompt)
            batch.step((session, [int(session.logits.argmax())]) for session in sessions)

    Sessions join and leave from step to step, and memories of all kinds mix. Every session's logits and memory are the
    bits that it would have alone.
    """

    _kind = "batch"

    def __init__(
        self, model: LoadedModel, *, threads: int | None = None, max_step: int = 512, kernels: str | None = None
    ) -> None:
        """What changes speed only: ``threads`` (None: as many as the machine has), ``max_step``, the tokens of a step of
        all sessions together, and ``kernels`` (None: the best that the processor has).

        Raises InvalidArgumentError, UnsupportedError, OutOfMemoryError.
        """
        if not isinstance(model, LoadedModel):
            raise TypeError(f"model must be a kvtide.Model, not {type(model).__name__}")
        self._native = _native.Batch(
            model._native,
            0 if threads is None else whole(threads, "threads", 1, 256),
            whole(max_step, "max_step", 1, 65536),
            "" if kernels is None else string(kernels, "kernels"),
        )

    @property
    def max_step(self) -> int:
        return int(self._native.max_step)

    @property
    def threads(self) -> int:
        return int(self._native.threads)

    def step(self, items: Iterable[tuple[Session, Any]], *, need_logits: bool = True) -> list[Outcome]:
        """Reads the tokens of every pair of a session and token ids, in one pass, and gives an Outcome for each.

        The newest token of a session that writes, a chunk of one that reads. The logits come with the last token that
        was given; ``need_logits=False`` leaves them out, which saves the output matrix. What one session cannot do stops
        no other. Raises InvalidArgumentError, and changes nothing, for a session that is there twice or of another model,
        for no tokens, and for more than ``max_step`` of them together; BusyError and ClosedError likewise.
        """
        self._check_open()
        pairs = list(items)
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError("items must be pairs of a session and token ids")
            if not isinstance(pair[0], Session):
                raise TypeError(f"items must hold sessions, not {type(pair[0]).__name__}")
        ids = [token_ids(tokens) for _, tokens in pairs]
        results = self._native.step([session._native for session, _ in pairs], ids, [bool(need_logits)] * len(pairs))
        return [
            Outcome(read, None if code is None else BY_CODE.get(code, InvalidArgumentError)(message))
            for read, code, message in results
        ]
