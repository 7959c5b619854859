"""Options given by keyword: one table for each call that has some, with the types for checkers beside it.

A name that a table does not have is refused with the nearest one that it has, as a TypeError, which is what Python
raises for a keyword that a function does not take.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, Literal, Mapping, NamedTuple, Sequence, TypedDict, TypeVar, Union

from kvtide._arguments import byte_count, callback, real, string, strings, token_ids, whole
from kvtide.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

Progress = Union[Callable[[int, int], Any], bool, None]
Size = Union[int, str]
Messages = Union[str, Sequence[Any]]
F = TypeVar("F", bound=Callable[..., Any])


class ProceduralOptions(TypedDict, total=False):
    """Options of a procedural memory; what is left out is filled in (docs/procedural_memory.md)."""

    budget: Size
    budget_for: int
    exact_first: bool
    sinks: int
    window: int
    window_type: str
    block: int
    rows: int
    summaries: int
    levels: int
    full_rows: int
    row_type: str
    full_type: str
    summary: str
    score: str
    far: str
    adapt: str
    first_layer: int
    last_layer: int
    pins: Sequence[tuple[int, int]]
    level_rows: int
    shed_below: float
    decay: float
    retention: float
    spill: str
    kv_heads: int
    heads: str | os.PathLike[str] | Sequence[Sequence[float]]
    full_from: float


class SessionOptions(TypedDict, total=False):
    """Options of ``kvtide.Session``."""

    context: int | None
    exact: bool
    key_type: str
    value_type: str
    threads: int | None
    prefill_chunk: int
    kernels: str | None
    rolling: tuple[int, int] | None
    attention_size: int | None
    slack: int
    checkpoint_every: int
    checkpoint_budget: Size
    procedural: ProceduralOptions | None
    kv_budget: Size | None


class GenerateOptions(TypedDict, total=False):
    """Options of ``Session.generate`` and of what is built on it."""

    max_tokens: int
    max_new_tokens: int
    stop: str | Sequence[str]
    stop_tokens: Any
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repetition_penalty: float
    repeat_last: int
    seed: int
    json_schema: Any
    grammar: str | None
    history: Any
    progress: Progress
    logits_processor: LogitsProcessors
    stopping_criteria: StoppingCriteria


class CompleteOptions(GenerateOptions, total=False):
    """Options of ``Session.complete``: those of ``generate``, ``on_text`` and ``draft``."""

    on_text: Callable[[str], Any] | None
    draft: Literal["ngram"] | None


class StreamOptions(GenerateOptions, total=False):
    """Options of a chat whose answer comes as it is written: those of ``generate``, the chat template, and tools."""

    template: str | None
    chat_template: str | None
    tools: Sequence[Any] | None


class ChatOptions(CompleteOptions, total=False):
    """Options of a chat: those of ``complete``, the chat template, and tools for it to write down."""

    template: str | None
    chat_template: str | None
    tools: Sequence[Any] | None


if TYPE_CHECKING:
    LogitsProcessor = Union[
        Callable[[np.ndarray], Union[np.ndarray, None]], Callable[[np.ndarray, np.ndarray], Union[np.ndarray, None]]
    ]
    LogitsProcessors = Union[LogitsProcessor, Sequence[LogitsProcessor], None]
    StoppingCriterion = Union[Callable[[Any], Any], Callable[[np.ndarray, np.ndarray], Any]]
    StoppingCriteria = Union[StoppingCriterion, Sequence[StoppingCriterion], None]


class Option(NamedTuple):
    """``check(value, name)`` gives what the call works with, or raises."""

    default: Any
    check: Callable[[Any, str], Any]


class Table:
    """The options of a call. ``other_names`` are accepted for those that they stand for."""

    def __init__(self, options: Mapping[str, Option], other_names: Mapping[str, str] | None = None) -> None:
        self.options = dict(options)
        self.other_names = dict(other_names or {})

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every option by name, checked: those given, and the defaults of the others."""
        check_names(given, (*self.options, *self.other_names))
        named: dict[str, Any] = {}
        for name, value in given.items():
            other = self.other_names.get(name)
            if other is not None and other in given:
                raise TypeError(f"{name} is another name for {other}: give one of the two")
            named[other or name] = value
        return {name: option.check(named.get(name, option.default), name) for name, option in self.options.items()}

    def shown_by(self, function: F) -> F:
        """Lets help() and notebooks show the options as the keywords that they are."""
        signature = inspect.signature(function)
        fixed = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default)
            for name, option in self.options.items()
        ]
        function.__signature__ = signature.replace(parameters=[*fixed, *keywords])  # type: ignore[attr-defined]
        return function


# What other packages call something that is asked for differently here.
ELSEWHERE = {
    "n_ctx": "the length of a text is context",
    "num_ctx": "the length of a text is context",
    "max_seq_len": "the length of a text is context",
    "max_length": "the tokens of an answer are max_tokens or max_new_tokens",
    "n_predict": "the tokens of an answer are max_tokens",
    "num_predict": "the tokens of an answer are max_tokens",
    "n_threads": "it is called threads",
    "do_sample": "temperature=0.7 samples, 0 takes the likeliest token",
    "typical_p": "there are top_k, top_p and min_p",
    "num_return_sequences": "a list of prompts gives a list of answers",
    "streamer": "stream=True in chat, on_text in complete; what generate gives is an iterator",
    "n_gpu_layers": "there is no GPU support; leave it out",
    "device": "there is no GPU support; leave it out",
    "device_map": "there is no GPU support; leave it out",
    "torch_dtype": "weights stay as they are in the file; key_type and value_type are those of the KV memory",
    "dtype": "weights stay as they are in the file; key_type and value_type are those of the KV memory",
    "type_k": "it is called key_type",
    "type_v": "it is called value_type",
}  # fmt: skip


def check_names(given: Iterable[str], known: Sequence[str], what: str = "option") -> None:
    """TypeError for a name that is not known, with the nearest one that is."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = (
                ELSEWHERE[name] if name in ELSEWHERE
                else f"did you mean {near[0]}?" if near
                else f"there are {', '.join(known)}"
            )  # fmt: skip
            raise TypeError(f"unknown {what} {name}; {hint}")


def optional(check: Callable[..., Any], *limits: int) -> Callable[[Any, str], Any]:
    """The same check, and None."""
    return lambda value, name: None if value is None else check(value, name, *limits)


def bounded(lowest: int, highest: int = 2**62) -> Callable[[Any, str], int]:
    return lambda value, name: whole(value, name, lowest, highest)


def flag(value: Any, name: str) -> bool:
    return bool(value)


def callables(value: Any, name: str) -> list[Callable[..., Any]]:
    """A list of functions; one function stands for a list of one."""
    if value is None:
        return []
    values = [value] if callable(value) else list(value) if isinstance(value, Sequence) else [value]
    for i, one in enumerate(values):
        if not callable(one):
            raise TypeError(f"{name} must be a function or a list of functions, not {one!r} (item {i})")
    return values


def functions(value: Any, name: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be a list of dicts of JSON schema, not {type(value).__name__}")
    return list(value)


def id_list(value: Any, name: str) -> list[int]:
    return [int(token) for token in token_ids(value)]


def progress_option(value: Any, name: str) -> Any:
    return value if isinstance(value, bool) else callback(value, name)


def schema_text(value: Any, name: str) -> str | None:
    """A JSON schema as text: given as a dict, as text, or as a class that tells one (pydantic's models do)."""
    if value is None or isinstance(value, str):
        return value
    telling = getattr(value, "model_json_schema", None)
    if callable(telling):
        value = telling()
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, JSON text or a pydantic model, not {value!r}")
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name} is no JSON: {error}") from None


def draft_option(value: Any, name: str) -> bool:
    if value not in (None, "ngram"):
        raise InvalidArgumentError(f'{name} must be "ngram" or None, not {value!r}')
    return value is not None


GENERATE = Table(
    {
        "max_tokens": Option(-1, bounded(-1)),
        "stop": Option((), strings),
        "stop_tokens": Option((), id_list),
        "temperature": Option(0.0, real),
        "top_k": Option(40, bounded(0, 2**31 - 1)),
        "top_p": Option(0.95, real),
        "min_p": Option(0.05, real),
        "repeat_penalty": Option(1.0, real),
        "repeat_last": Option(64, bounded(0, 2**31 - 1)),
        "seed": Option(0, bounded(0, 2**64 - 1)),
        "json_schema": Option(None, schema_text),
        "grammar": Option(None, optional(string)),
        "history": Option(None, optional(id_list)),
        "progress": Option(None, progress_option),
        "logits_processor": Option(None, callables),
        "stopping_criteria": Option(None, callables),
    },
    other_names={"max_new_tokens": "max_tokens", "repetition_penalty": "repeat_penalty"},
)
COMPLETE = Table(
    {**GENERATE.options, "on_text": Option(None, callback), "draft": Option(None, draft_option)}, GENERATE.other_names
)
CHAT = Table(
    {"template": Option(None, optional(string)), "tools": Option(None, optional(functions)), **COMPLETE.options},
    {**COMPLETE.other_names, "chat_template": "template"},
)


def check_draft(options: Mapping[str, Any], stream: bool = False) -> None:
    """Tokens that were read on trial are there before anybody could look at each of them."""
    for name in ("logits_processor", "stopping_criteria"):
        if options["draft"] and options[name]:
            raise InvalidArgumentError(f"draft and {name} exclude each other: a draft reads several tokens at once")
    if options["draft"] and stream:
        raise InvalidArgumentError("draft and stream=True exclude each other; on_text receives the text as it comes")


def check_form(options: Mapping[str, Any]) -> None:
    if options["json_schema"] is not None and options["grammar"] is not None:
        raise InvalidArgumentError("json_schema and grammar exclude each other: an answer has one form")


SAMPLER_NAMES = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last", "seed")


def rolling_of(rolling: Any, name: str = "rolling") -> tuple[int, int] | None:
    """(sinks, window) as the native module takes it."""
    if rolling is None:
        return None
    try:
        sinks, window = rolling
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a pair (sinks, window) or None, not {rolling!r}") from None
    return whole(sinks, "the number of sinks"), whole(window, "the window", 1)


def procedural_of(value: Any, name: str) -> dict[str, Any] | None:
    """A dict for the native module, which knows which names and values there are."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict of options or None, not {value!r}")
    given = dict(value)
    if "budget" in given:
        given["budget"] = byte_count(given["budget"], f"{name}['budget']")
    return given


SESSION = Table(
    {
        "context": Option(None, lambda value, name: 0 if value is None else whole(value, name, 1)),
        "exact": Option(False, flag),
        "key_type": Option("f16", string),
        "value_type": Option("f16", string),
        "threads": Option(None, lambda value, name: 0 if value is None else whole(value, name, 1, 256)),
        "prefill_chunk": Option(512, bounded(1)),
        "kernels": Option(None, lambda value, name: "" if value is None else string(value, name)),
        "rolling": Option(None, rolling_of),
        "attention_size": Option(None, optional(whole, 1)),
        "slack": Option(0, bounded(0)),
        "checkpoint_every": Option(0, bounded(0)),
        "checkpoint_budget": Option("64M", byte_count),
        "procedural": Option(None, procedural_of),
        "kv_budget": Option(None, optional(byte_count)),
    }
)
