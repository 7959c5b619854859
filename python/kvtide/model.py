"""A language model, and the sessions made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Literal, Mapping, Sequence, cast, overload

import numpy as np

from kvtide._loaded import LoadedModel
from kvtide._options import CHAT, GENERATE, SESSION, Table
from kvtide.batch import Batch
from kvtide.generation import Completion, Generation
from kvtide.session import Session

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvtide._options import ChatOptions, GenerateOptions, Messages, SessionOptions, StreamOptions

    class ModelGenerateOptions(GenerateOptions, SessionOptions, total=False):
        """Options of ``Model.generate``: those of a session, and those of its ``generate``."""

    class ModelChatOptions(ChatOptions, SessionOptions, total=False):
        """Options of ``Model.chat``: those of a session, and those of its ``chat``."""

    class ModelStreamOptions(StreamOptions, SessionOptions, total=False):
        """The same with ``stream=True``."""


_CHAT = Table({**CHAT.options, **SESSION.options}, CHAT.other_names)
_GENERATE = Table({**GENERATE.options, **SESSION.options}, GENERATE.other_names)


class Model(LoadedModel):
    """A model loaded from a GGUF file or a Hugging Face folder. Any number of sessions, in any number of threads, may
    share one.

    Closing it (or leaving its ``with`` block) gives the weights back as soon as the last session on it is closed.
    """

    @SESSION.shown_by
    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """A new, empty session on this model; options as for ``kvtide.Session``."""
        return Session(self, **options)

    def batch(self, *, threads: int | None = None, max_step: int = 512, kernels: str | None = None) -> Batch:
        """Several sessions of this model in one pass; as ``kvtide.Batch``."""
        return Batch(self, threads=threads, max_step=max_step, kernels=kernels)

    @overload
    def generate(self, prompt: list[str] | tuple[str, ...], **options: Unpack[ModelGenerateOptions]) -> list[Completion]: ...
    @overload
    def generate(
        self, prompt: str | Sequence[int] | np.ndarray | Iterable[int], **options: Unpack[ModelGenerateOptions]
    ) -> Generation: ...
    @_GENERATE.shown_by
    def generate(self, prompt: Any, **options: Unpack[ModelGenerateOptions]) -> Generation | list[Completion]:
        """``Session.generate`` in a session of its own, which lives as long as the iterator does. Takes the options of
        both, such as ``kv_budget="64M", max_new_tokens=100``. A list of texts gives a list of ``Completion``."""
        of_session, of_answer = _apart(options, _GENERATE)
        answer: Generation | list[Completion] = self.session(**of_session).generate(prompt, **of_answer)
        return answer

    @overload
    def chat(self, messages: Messages, *, stream: Literal[False] = False, **options: Unpack[ModelChatOptions]) -> Completion: ...
    @overload
    def chat(self, messages: Messages, *, stream: Literal[True], **options: Unpack[ModelStreamOptions]) -> Generation: ...
    @_CHAT.shown_by
    def chat(self, messages: Messages, *, stream: bool = False, **options: Unpack[ModelChatOptions]) -> Completion | Generation:
        """The assistant's answer to a conversation, in a session of its own: ``Session.chat``, with the options of the
        session beside those of the answer.

            for piece in model.chat([{"role": "user", "content": "Hello!"}], stream=True, max_new_tokens=100):
                print(piece, end="", flush=True)

        A conversation of several turns reads nothing twice in one session: ``session.chat("...")``.
        """
        of_session, of_answer = _apart(options, _CHAT)
        session = self.session(**of_session)
        if stream:
            return session.chat(messages, stream=True, **of_answer)
        with session:
            answer: Completion = session.chat(messages, **of_answer)
        return answer


def _apart(options: Mapping[str, Any], table: Table) -> tuple[SessionOptions, Any]:
    """The options of a session, and the others. Every value is checked before there is a session."""
    table(options)
    of_session = {name: value for name, value in options.items() if name in SESSION.options}
    return cast("SessionOptions", of_session), {name: options[name] for name in options if name not in of_session}
