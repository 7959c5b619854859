"""Text to token ids and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Sequence, overload

from kvtide._arguments import string, token_ids, utf8, whole
from kvtide._json_text import json_text
from kvtide.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kvtide import _native


class Tokenizer:
    """The vocabulary of a model. Get it from ``Model.tokenizer``; usable from any thread."""

    def __init__(self, native: _native.Model) -> None:
        self._native = native

    def encode(
        self, text: str, *, add_bos: bool | None = None, special: bool = True, continues: bool = False
    ) -> list[int]:
        """Ids of a text.

        ``add_bos``: put the beginning-of-text token in front; None: as the vocabulary says. ``special``: markers such
        as ``<|im_start|>`` in the text become their token; False: they are plain text. ``continues``: the text goes
        on behind other text, so nothing is put in front.
        """
        return self._native.encode(utf8(text), None if add_bos is None else bool(add_bos), bool(special), bool(continues))

    def decode(self, tokens: Any, *, special: bool = False) -> str:
        """Text of a sequence of ids. Bytes that are no valid UTF-8 come out as U+FFFD; ``special`` shows markers."""
        return self.decode_bytes(tokens, special=special).decode(errors="replace")

    def decode_bytes(self, tokens: Any, *, special: bool = False) -> bytes:
        """The same, as the bytes that they are."""
        return self._native.decode(token_ids(tokens).tolist(), bool(special))

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Bytes of one token, which may be part of a character."""
        return self._native.piece(self._id(token), bool(special))

    def find(self, token: str) -> int | None:
        """Id of a token by its stored text, such as ``<|im_end|>``."""
        return self._native.find(utf8(token, "token"))

    def ends_text(self, token: int) -> bool:
        """True for the tokens that end a text or a turn."""
        return self._native.ends_text(self._id(token))

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        *,
        tokenize: Literal[True] = True,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
    ) -> list[int]: ...
    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        *,
        tokenize: bool,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
    ) -> list[int] | str: ...
    def apply_chat_template(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
    ) -> list[int] | str:
        """A conversation as the model wants it written down, as transformers does it: ids, or their text with
        ``tokenize=False``. ``tools``: dicts of JSON schema. ``add_generation_prompt``: end with what starts the
        assistant's answer. ``chat_template``: one of ``Model.chat_template_names()``, or the source of one; None: the
        model's own. Raises InvalidArgumentError for what the template itself refuses."""
        chat = chat_ids(
            self._native, messages_of(messages), template=chat_template, tools=tools, open_answer=bool(add_generation_prompt)
        )
        return chat.read if tokenize else chat.text.decode()

    @property
    def bos(self) -> int | None:
        """The token that begins a text."""
        return self._native.bos

    @property
    def eos(self) -> int | None:
        """The token that ends a text."""
        return self._native.eos

    @property
    def adds_bos(self) -> bool:
        """Whether ``encode`` puts ``bos`` in front unless told otherwise."""
        return self._native.adds_bos

    def __len__(self) -> int:
        return self._native.vocabulary

    def __repr__(self) -> str:
        return "<kvtide.Tokenizer, model closed>" if self._native.closed else f"<kvtide.Tokenizer: {len(self)} tokens>"

    @staticmethod
    def _id(token: int) -> int:
        return whole(token, "token", -(2**31), 2**31 - 1)


Message = tuple[str, str, str]  # role, content, and a JSON object of further members; "": none


def messages_of(messages: Sequence[Any]) -> list[Message]:
    """From pairs of role and content, or from dicts with these keys and others that templates know."""
    if isinstance(messages, (str, bytes, dict)):
        raise TypeError(f"messages must be a list of (role, content) or dicts, not {type(messages).__name__}")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: Any, where: str) -> Message:
    more = ""
    try:
        if isinstance(message, dict):
            others = {key: value for key, value in message.items() if key not in ("role", "content")}
            role, content = message["role"], message["content"]
            if content is None and others.get("tool_calls"):
                content = ""
            more = json_text(others, where) if others else ""
        else:
            role, content = message
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError) or (isinstance(error, TypeError) and str(error).startswith(where)):
            raise
        raise TypeError(f"{where} must be a (role, content) pair or a dict with these keys") from None
    return string(role, f"{where} role"), _content_text(content, f"{where} content"), more


def _content_text(content: Any, where: str) -> str:
    """A text, or the texts of a list of parts, as OpenAI's clients write it down: [{"type": "text", "text": "..."}]."""
    if not isinstance(content, (list, tuple)):
        return string(content, where)
    whole = ""
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text":
            raise TypeError(f"{where}[{i}]: a part of type {kind!r}; models here read text: {{'type': 'text', 'text': '...'}}")
        whole += string(part.get("text"), f"{where}[{i}]['text']")
    return whole


class ChatIds(NamedTuple):
    keep: int  # ids of those held that stay
    read: list[int]  # what follows them
    text: bytes  # of the whole conversation


def chat_ids(
    native: _native.Model,
    messages: Sequence[Message],
    *,
    template: str | None = None,
    tools: Sequence[Any] | None = None,
    open_answer: bool = True,
    continues: bool = False,
    held: bytes = b"",
    held_ids: Sequence[int] = (),
) -> ChatIds:
    """Ids of a conversation, behind those that a session holds of it as the text ``held``."""
    source = b"" if template is None else utf8(template, "template")
    functions = json_text(list(tools), "tools") if tools else ""
    return ChatIds(
        *native.encode_chat(
            messages, source, utf8(functions), bool(open_answer), bool(continues), held, held_ids
        )
    )
