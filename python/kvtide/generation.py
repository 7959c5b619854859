"""Continuing a text, one token at a time."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

from kvtide import _native
from kvtide._arguments import real, strings, token_ids, whole
from kvtide.errors import BusyError

if TYPE_CHECKING:
    from kvtide.session import Session


class Piece(NamedTuple):
    """What one step of a generation adds. ``str(piece)`` is its text.

    The text lags behind the token while a character is incomplete or might become a stop string; what was held back
    comes, at the latest, with a last piece that has no token.
    """

    token: int | None
    text: str
    log_probability: float | None

    def __str__(self) -> str:
        return self.text


class Completion(NamedTuple):
    """A whole answer: its text, its tokens, and why it ended."""

    text: str
    tokens: list[int]
    reason: str

    def __str__(self) -> str:
        return self.text


class Limits(NamedTuple):
    max_tokens: int
    stop: list[str]
    stop_tokens: list[int]


def stop_options(max_tokens: Any, stop: Any, stop_tokens: Any) -> Limits:
    return Limits(whole(max_tokens, "max_tokens", -1), strings(stop, "stop"), token_ids(stop_tokens).tolist())


def sampler_options(
    temperature: Any, top_k: Any, top_p: Any, min_p: Any, repeat_penalty: Any, repeat_last: Any, seed: Any
) -> dict[str, Any]:
    options = {
        "temperature": real(temperature, "temperature"),
        "top_k": whole(top_k, "top_k", 0, 2**31 - 1),
        "top_p": real(top_p, "top_p"),
        "min_p": real(min_p, "min_p"),
        "repeat_penalty": real(repeat_penalty, "repeat_penalty"),
        "repeat_last": whole(repeat_last, "repeat_last", 0, 2**31 - 1),
        "seed": whole(seed, "seed", 0, 2**64 - 1),
    }
    _native.Sampler(**options)  # a value out of range is refused before the prompt is read
    return options


class Generation(Iterator[Piece]):
    """The continuation of a session's text, computed as it is asked for. Made by ``Session.generate``.

    ``tokens`` and ``text`` are what came so far. ``reason`` is None until it ends, then "end_of_text", "max_tokens",
    "stop_string", "context_full" or "cancelled".
    """

    def __init__(self, session: Session, sampler: dict[str, Any], limits: Limits, recent: list[int]) -> None:
        self.tokens: list[int] = []
        self.text = ""
        self.reason: str | None = None
        self._session = session
        self._native = session._native
        self._tokenizer = session.model.tokenizer
        self._sampler = _native.Sampler(**sampler)
        self._limits = limits
        self._recent = recent
        self._characters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""  # text that may yet become a stop string
        self._changes = self._native.changes
        self._cancels = self._native.cancels

    def __next__(self) -> Piece:
        if self.reason is not None:
            raise StopIteration
        if self._native.cancels != self._cancels:
            return self._end("cancelled")
        changes = self._changes  # another thread may be here, too: only one of the two appends its token
        if self._native.changes != changes:
            raise BusyError("the session was used by someone else since this generation began; start a new one")
        if 0 <= self._limits.max_tokens <= len(self.tokens):
            return self._end("max_tokens")
        token = self._native.pick(self._sampler, self._recent)
        if self._tokenizer.ends_text(token) or token in self._limits.stop_tokens:
            return self._end("end_of_text")
        log_probability = self._native.log_probability(token)
        full = self._native.room == 0
        if not full:
            self._changes = self._native.advance(token, changes)
        self.tokens.append(token)
        self._recent.append(token)
        text, stopped = self._certain(self._characters.decode(self._tokenizer.piece(token)))
        if stopped:
            self.reason = "stop_string"
        elif full:
            self.reason = "context_full"
            text += self._rest()
        self.text += text
        return Piece(token, text, log_probability)

    def _end(self, reason: str) -> Piece:
        self.reason = reason
        text = self._rest()
        if not text:
            raise StopIteration
        self.text += text
        return Piece(None, text, None)

    def _certain(self, text: str) -> tuple[str, bool]:
        """Text that is sure to be part of the answer, and whether a stop string ended it."""
        self._held += text
        ends = [at for stop in self._limits.stop if stop and (at := self._held.find(stop)) >= 0]
        if ends:
            text, self._held = self._held[: min(ends)], ""
            return text, True
        keep = max((_overlap(self._held, stop) for stop in self._limits.stop), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text, False

    def _rest(self) -> str:
        """What was held back, at the end. A stop string that only the last, incomplete character completes counts."""
        text, stopped = self._certain(self._characters.decode(b"", final=True))
        if stopped:
            return text
        text, self._held = text + self._held, ""
        return text

    def __repr__(self) -> str:
        return f"<kvtide.Generation: {len(self.tokens)} tokens, {self.reason or 'going on'}>"


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text are the beginning of the stop string."""
    return next((n for n in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:n])), 0)
