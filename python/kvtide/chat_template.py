"""Chat templates: the Jinja that comes with a model, rendered without jinja2."""

from __future__ import annotations

import datetime
from typing import Any, Callable, Sequence

from kvtide import _native
from kvtide._arguments import callback, utf8
from kvtide._json_text import json_text


class ChatTemplate:
    """A chat template from its source, as it stands in ``tokenizer.chat_template`` or ``chat_template.jinja``.

        template = kvtide.ChatTemplate(model.chat_template)
        text = template.render([{"role": "user", "content": "Hi"}], bos_token="<s>", eos_token="</s>")

    It renders what jinja2 renders in the environment of transformers. Raises BadFormatError for what is no template and
    UnsupportedError for filters and tags that there are not; both name the line. ``clock``: what ``strftime_now`` tells,
    a function that returns a ``datetime``; None: the local time. Usable from any thread.
    """

    def __init__(self, source: str, *, clock: Callable[[], datetime.datetime] | None = None) -> None:
        self._native = _native.ChatTemplate(utf8(source, "source"))
        self._source = source
        self._clock = callback(clock, "clock") or datetime.datetime.now

    @property
    def source(self) -> str:
        return self._source

    def render(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The text of a conversation.

        ``messages``: dicts with "role", "content" and whatever else the template knows. ``tools``: dicts of JSON schema.
        ``add_generation_prompt``: end with what starts the assistant's answer. ``variables``: what else the template can
        read, such as ``bos_token``. Values are those of JSON, and a tuple is a list; TypeError for others.
        Raises InvalidArgumentError with the line for what the template itself raises, and for values that do not fit.
        """
        given = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt, **variables}
        now = self._clock()
        parts = (now.year, now.month, now.day, now.hour, now.minute, now.second, now.weekday(), now.timetuple().tm_yday)
        return self._native.render(utf8(json_text(given, "variables", names=True), "variables"), parts).decode()

    def __repr__(self) -> str:
        return f"<kvtide.ChatTemplate: {len(self._source)} characters>"
