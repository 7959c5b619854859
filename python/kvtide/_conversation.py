"""A conversation that a session holds, and what a caller adds to it."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtide.errors import InvalidArgumentError
from kvtide.generation import Generation
from kvtide.tokenizer import messages_of


class Talk(NamedTuple):
    """Messages as pairs of role and content, held as long as nobody else uses the session."""

    messages: list[tuple[str, str]]
    answer: Generation | None  # to the last of them
    changes: int

    def all(self) -> list[tuple[str, str]]:
        return self.messages if self.answer is None else [*self.messages, ("assistant", self.answer.text)]

    def at(self) -> int:
        return self.changes if self.answer is None else self.answer._changes


def joined(held: list[tuple[str, str]], messages: Any) -> list[tuple[str, str]]:
    """The whole conversation: what is held, and behind it what is new."""
    if isinstance(messages, str):
        return [*held, ("user", messages)]
    pairs = messages_of(messages)
    if not _begins_with(pairs, held):
        raise InvalidArgumentError(
            "messages do not begin with the conversation that this session holds; give the whole of it with what is "
            "new at its end, give only a str, or clear() the session first"
        )
    if len(pairs) == len(held):
        raise InvalidArgumentError("messages hold nothing new to answer")
    return [*held, *pairs[len(held) :]]


def _begins_with(pairs: list[tuple[str, str]], held: list[tuple[str, str]]) -> bool:
    # Answers are often trimmed before they are kept.
    same = (a[0] == b[0] and a[1].strip() == b[1].strip() for a, b in zip(pairs, held))
    return len(pairs) >= len(held) and all(same)
