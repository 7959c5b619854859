"""Continuing a text, one token at a time."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, NamedTuple

from kvtide import _native
from kvtide._hooks import Criteria, Processors
from kvtide._options import SAMPLER_NAMES, check_form
from kvtide.errors import BusyError, InvalidArgumentError

if TYPE_CHECKING:
    from kvtide.tokenizer import Tokenizer


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


class Generation(Iterator[Piece]):
    """The continuation of a session's text, computed as it is asked for. Made by ``Session.generate``.

    ``tokens`` and ``text`` are what came so far. ``reason`` is None until it ends, then "end_of_text", "max_tokens",
    "stop_string", "stopping_criteria", "context_full" or "cancelled".
    """

    def __init__(
        self,
        native: _native.Session,
        tokenizer: Tokenizer,
        options: Mapping[str, Any],
        recent: list[int],
        form: _native.AnswerForm | None = None,
    ) -> None:
        """``options``: every one of ``GENERATE``. ``recent``: tokens that the repeat penalty sees."""
        self.tokens: list[int] = []
        self.text = ""
        self.reason: str | None = None
        self._native = native
        self._tokenizer = tokenizer
        self._sampler = sampler_of(options)
        self._max_tokens: int = options["max_tokens"]
        self._stop: list[str] = options["stop"]
        self._stop_tokens: list[int] = list(options["stop_tokens"])
        self._repeat_last: int = options["repeat_last"]
        self._processors = Processors(options["logits_processor"])
        self._criteria = Criteria(options["stopping_criteria"])
        self._place = None if form is None else _native.FormPlace(form)
        self._recent = recent
        self._characters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""  # text that may yet become a stop string
        self._changes: int = native.changes
        self._cancels: int = native.cancels

    def __next__(self) -> Piece:
        if self.reason is not None:
            raise StopIteration
        if self._native.cancels != self._cancels:
            return self._end("cancelled")
        changes = self._changes  # another thread may be here, too: only one of the two appends its token
        if self._native.changes != changes:
            raise BusyError("the session was used by someone else since this generation began; start a new one")
        if 0 <= self._max_tokens <= len(self.tokens):
            return self._end("max_tokens")
        if self._place is not None and not self._place.may_go_on:
            return self._end("end_of_text")
        token = self._pick()
        if self._tokenizer.ends_text(token) or token in self._stop_tokens:
            return self._end("end_of_text")
        log_probability = self._native.log_probability(token)
        full = self._native.room == 0
        if not full:
            self._changes = self._native.advance(token, changes)
        if self._place is not None:
            self._place.advance(self._tokenizer.piece(token))
        self.tokens.append(token)
        self._recent = [*self._recent[len(self._recent) + 1 - self._repeat_last :], token] if self._repeat_last else []
        text, stopped = self._certain(self._characters.decode(self._tokenizer.piece(token)))
        if stopped:
            self.reason = "stop_string"
        elif full:
            self.reason = "context_full"
            text += self._rest()
        self.text += text
        if self.reason is None and self._criteria.met(self, self._native):
            self.reason = "stopping_criteria"
            rest = self._rest()
            self.text += rest
            text += rest
        return Piece(token, text, log_probability)

    def written(self) -> bytes:
        """The text of all tokens: also of those that a stop string cut off."""
        if self.reason == "stop_string":
            return b"".join(self._tokenizer.piece(token) for token in self.tokens)
        return self.text.encode()

    def finish(self, on_text: Callable[[str], Any] | None = None) -> Completion:
        """All that is still to come, in one call. ``on_text`` receives the text as it comes; False ends it."""
        for piece in self:
            if piece.text and on_text is not None and on_text(piece.text) is False:
                self.reason = "cancelled"
        return Completion(self.text, self.tokens, self.reason or "cancelled")

    def _pick(self) -> int:
        logits = None
        if self._processors:
            logits = self._native.logits()
            if logits.size == 0:
                raise InvalidArgumentError(self._native.why_no_logits())
            logits = self._processors.applied(logits, self._native)
        if self._place is not None:
            return self._native.pick_held(self._sampler, self._place, logits, self._recent, self._stop_tokens)
        if logits is None:
            return self._native.pick(self._sampler, self._recent)
        return self._native.pick_from(self._sampler, logits, self._recent)

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
        ends = [at for stop in self._stop if stop and (at := self._held.find(stop)) >= 0]
        if ends:
            text, self._held = self._held[: min(ends)], ""
            return text, True
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
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


def form_of(model: _native.Model, options: Mapping[str, Any]) -> _native.AnswerForm | None:
    """What the answer is held to. Raises BadFormatError, InvalidArgumentError, UnsupportedError."""
    check_form(options)
    if options["json_schema"] is None and options["grammar"] is None:
        return None
    schema, grammar = (options["json_schema"] or "").encode(), (options["grammar"] or "").encode()
    if options["json_schema"] is not None and not schema.strip():
        raise InvalidArgumentError("json_schema is empty")
    return _native.AnswerForm(model, schema, grammar)


def sampler_of(options: Mapping[str, Any]) -> _native.Sampler:
    """Raises InvalidArgumentError for a value out of range."""
    return _native.Sampler(**{name: options[name] for name in SAMPLER_NAMES})


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text are the beginning of the stop string."""
    return next((n for n in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:n])), 0)
