"""A conversation that a session holds, and what a caller adds to it."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtide.errors import InvalidArgumentError
from kvtide.generation import Generation
from kvtide.tokenizer import Message, messages_of


class Talk(NamedTuple):
    """Messages, held as long as nobody else uses the session."""

    messages: list[Message]
    answer: Generation | None  # to the last of them
    changes: int
    base: int  # the position where the conversation begins
    text: bytes  # of the conversation, as the template wrote it, up to the answer

    def all(self) -> list[Message]:
        return self.messages if self.answer is None else [*self.messages, ("assistant", self.answer.text, "")]

    def held(self) -> bytes:
        """The text that the session holds."""
        return self.text if self.answer is None else self.text + self.answer.written()

    def at(self) -> int:
        return self.changes if self.answer is None else self.answer._changes


def joined(held: list[Message], messages: Any) -> list[Message]:
    """The whole conversation: what is held, and behind it what is new."""
    if isinstance(messages, str):
        return [*held, ("user", messages, "")]
    pairs = messages_of(messages)
    if not _begins_with(pairs, held):
        raise InvalidArgumentError(
            "messages do not begin with the conversation that this session holds; give the whole of it with what is "
            "new at its end, give only a str, or clear() the session first"
        )
    if len(pairs) == len(held):
        raise InvalidArgumentError("messages hold nothing new to answer")
    return [*held, *pairs[len(held) :]]


def _begins_with(pairs: list[Message], held: list[Message]) -> bool:
    # Answers are often trimmed before they are kept.
    same = (a[0] == b[0] and a[1].strip() == b[1].strip() for a, b in zip(pairs, held))
    return len(pairs) >= len(held) and all(same)
