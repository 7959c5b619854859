"""A text being read and continued, with the KV memory in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Literal, Mapping, Sequence, overload

import numpy as np

from kvtide import _native
from kvtide._arguments import string, token_ids, utf8
from kvtide._conversation import Talk, joined
from kvtide._heads import with_heads
from kvtide._loaded import LoadedModel
from kvtide._options import (
    CHAT, COMPLETE, GENERATE, SAMPLER_NAMES, SESSION, Progress, check_draft, check_names, progress_option,
)  # fmt: skip
from kvtide._progress import over, reading
from kvtide._session_memory import SessionMemory
from kvtide.errors import InvalidArgumentError
from kvtide.generation import Completion, Generation, form_of, sampler_of
from kvtide.memory import MemoryUse as MemoryUse
from kvtide.tokenizer import chat_ids

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from kvtide.tokenizer import ChatIds, Message
    from kvtide._options import ChatOptions, CompleteOptions, GenerateOptions, Messages, SessionOptions, StreamOptions

Prompts = (list, tuple)  # of texts; a list of numbers is one prompt, in token ids


class Session(SessionMemory):
    """One text: tokens in, logits out. Serves one caller at a time; a second one gets a BusyError.

    Long calls give up the GIL, listen to Ctrl-C and to ``cancel()`` between chunks, and call ``progress(read, of)``
    after each chunk: an exception that it raises comes out of the call, and False ends it with a CancelledError.
    ``progress=True`` shows a bar by tqdm instead. After any error the session holds exactly the tokens of the chunks
    that were complete.
    """

    @SESSION.shown_by
    def __init__(self, model: LoadedModel, **options: Unpack[SessionOptions]) -> None:
        """What changes results: ``context``, the tokens that fit (None: what the model was trained for), or with a budget
        those that are expected; ``exact``, f32
        activations in every matrix product; ``key_type`` and ``value_type`` of the KV memory, "f16", "f32", "q8_0" or "q4_0";
        ``rolling=(sinks, window)``, to forget all but the first and the newest tokens and never fill up;
        ``attention_size``, newest positions that a query sees (None: all that are held). ``slack``: newest tokens that
        can be taken back also where a window has moved on. ``checkpoint_every``: tokens from one position that ``truncate``
        can go back to in such a memory to the next (0: only those of ``checkpoint()``); ``checkpoint_budget``: bytes that
        these take at most, a number or text such as "64M".

        ``kv_budget``: bytes that the KV memory never exceeds, for texts of any length: a number, or text such as "64M"
        or "1.5G" (powers of 1024). The past is then kept as summaries and exact outliers. Say in ``context`` how long the
        text will be, and it is spent better; longer ones are read, too. ``procedural``, a dict, says
        more about that memory: ``budget`` (the same as ``kv_budget``), ``budget_for`` (the same as ``context``),
        ``sinks``, ``window``, ``block``, ``rows`` (of a block, on average over all heads), ``summaries``, ``levels``,
        ``row_type`` (of rows of a block: "f16", "q8_0" or "q4_0"), ``full_rows``, ``full_type`` (of these, likewise),
        ``window_type`` (of the newest rows: "as_written", or "q8_0", which a budget picks where it cannot hold every row),
        ``exact_first`` (where a budget has no end: keep every row while it holds them all),
        ``summary``, ``score``, ``far``, ``adapt``, ``first_layer`` and ``last_layer`` (of those that are compressed),
        ``pins`` (pairs of positions, the second not included), ``level_rows``, ``shed_below``, ``decay``,
        ``retention``, ``spill`` (a path), ``heads`` and ``full_from`` (the induction from which on a head copies, if its rows
        are worth something); what is left out is filled in. ``heads``: "auto", the table that came with the package or that ``Model.measure_heads`` or the
        program have measured; "even", all alike; the path of what ``kvtide heads`` wrote; or (induction, share,
        output norm, worth) per layer and KV head, of which ``kv_heads`` are in a layer.

        What changes speed only: ``threads`` (None: as many as the machine has), ``prefill_chunk`` in tokens, and
        ``kernels``: "scalar"; on x86 "amx", "avx512_bf16", "avx512", "avx_vnni", "avx2"; on Arm "i8mm_bf16", "i8mm",
        "dotprod", "neon" (None: the best that the processor has).

        Raises InvalidArgumentError, UnsupportedError, OutOfMemoryError; TypeError for an option that there is not.
        """
        if not isinstance(model, LoadedModel):
            raise TypeError(f"model must be a kvtide.Model, not {type(model).__name__}")
        filled = SESSION(options)
        filled["procedural"] = _procedural(filled, options, model)
        self._model = model
        self._native = _native.Session(model._native, **filled)
        self._name = model.title

    def read(self, text: Any, *, special: bool = True, progress: Progress = None) -> int:
        """Appends a text, or token ids (a list or an integer array), and gives the number of tokens.

        A text that starts the session gets what the vocabulary puts in front; ``special=False`` reads markers such as
        ``<|im_end|>`` as plain text. Raises ContextFullError before anything is read when it does not fit.
        """
        ids = self._ids(text, special)
        self._read(ids, progress_option(progress, "progress"))
        return len(ids)

    def read_logits(self, text: Any, *, special: bool = True, progress: Progress = None) -> np.ndarray:
        """The same; gives the logits after every token, float32 ``[tokens, vocabulary]``."""
        ids = self._ids(text, special)
        rows = np.empty((len(ids), self._model.vocabulary), np.float32)
        with reading(progress_option(progress, "progress")) as heard:
            self._native.read_logits(ids, rows, heard)
        return rows

    def score(self, text: Any, *, special: bool = True, progress: Progress = None) -> np.ndarray:
        """The same; gives the log-probability of every token given all before it, float64 ``[tokens]``.

        NaN for the first token of a session, which has nothing before it.
        """
        ids = self._ids(text, special)
        result = np.empty(len(ids), np.float64)
        with reading(progress_option(progress, "progress")) as heard:
            self._native.score(ids, result, heard)
        return result

    @overload
    def generate(self, prompt: list[str] | tuple[str, ...], **options: Unpack[GenerateOptions]) -> list[Completion]: ...
    @overload
    def generate(
        self, prompt: str | Sequence[int] | np.ndarray | Iterable[int] | None = None, **options: Unpack[GenerateOptions]
    ) -> Generation: ...
    @GENERATE.shown_by
    def generate(self, prompt: Any = None, **options: Unpack[GenerateOptions]) -> Generation | list[Completion]:
        """Reads the prompt, if there is one, and gives an iterator over the continuation.

            for piece in session.generate("Once upon a time", max_tokens=64):
                print(piece, end="", flush=True)

        Each piece has ``token``, ``text`` and ``log_probability``; the iterator collects ``text`` and ``tokens`` and
        says why it ended in ``reason``. It computes as it is asked: leaving the loop early costs nothing, and every
        token that was handed out is part of the session. ``temperature=0`` always takes the most likely token.
        ``max_tokens`` (or ``max_new_tokens``) -1: until the text ends. ``stop`` strings end the answer and are not part
        of it. ``history``: tokens that the repeat penalty sees from the start (None: those of the prompt).

        ``json_schema``: a dict, JSON text or a pydantic model that the answer is held to. ``grammar``: the same in the
        notation of llama.cpp (GBNF). What neither allows has no probability, and an answer that nothing may follow ends.

        ``logits_processor``: a function, or several, that changes the logits before a token is chosen. It takes them as
        a float32 array ``[vocabulary]``, or ``(tokens, logits)`` with the int32 ids that the session holds, and gives
        others or changes them in place. ``stopping_criteria``: a function, or several, that takes this iterator, or
        ``(tokens, logits)``, after each token; True ends the answer.

        A list of texts: each is read and continued in a fork of this session, one after the other, and a list of
        ``Completion`` comes back in the same order; this session stays as it is.
        """
        if isinstance(prompt, Prompts) and any(isinstance(one, str) for one in prompt):
            return self._each(prompt, options)
        filled = GENERATE(options)
        sampler_of(filled)  # a value out of range is refused before the prompt is read
        form = form_of(self._model._native, filled)
        return Generation(self._native, self._model.tokenizer, filled, self._read_prompt(prompt, filled), form)

    @overload
    def complete(self, prompt: list[str] | tuple[str, ...], **options: Unpack[CompleteOptions]) -> list[Completion]: ...
    @overload
    def complete(
        self, prompt: str | Sequence[int] | np.ndarray | Iterable[int] | None = None, **options: Unpack[CompleteOptions]
    ) -> Completion: ...
    @COMPLETE.shown_by
    def complete(self, prompt: Any = None, **options: Unpack[CompleteOptions]) -> Completion | list[Completion]:
        """``generate`` in one call that holds the GIL for no token: gives the text, the tokens and the reason. Functions
        among the options are called with the GIL.

        ``on_text`` receives the text as it comes; False ends the answer, an exception comes out of here. Raises
        InvalidArgumentError where there is nothing to go on from, and says why: nothing was read, reading was
        interrupted, or positions were taken back.

        ``draft="ngram"`` guesses tokens from what the text said before and reads them on trial: texts that repeat
        themselves are written faster. The answer is the same, sampled ones included.
        """
        if isinstance(prompt, Prompts) and any(isinstance(one, str) for one in prompt):
            return self._each(prompt, options)
        filled = COMPLETE(options)
        sampler_of(filled)
        check_draft(filled)
        form = form_of(self._model._native, filled)
        recent = self._read_prompt(prompt, filled)
        if filled["logits_processor"] or filled["stopping_criteria"]:
            return Generation(self._native, self._model.tokenizer, filled, recent, form).finish(filled["on_text"])
        return self._at_once(filled, recent, form)

    def _at_once(self, options: Mapping[str, Any], recent: list[int], form: _native.AnswerForm | None) -> Completion:
        sampler = {name: options[name] for name in SAMPLER_NAMES}
        limits = options["max_tokens"], options["stop"], options["stop_tokens"]
        tokens, text, reason = self._native.generate(*limits, sampler, recent, options["draft"], form, options["on_text"])
        return Completion(text, tokens, reason)

    @overload
    def chat(self, messages: Messages, *, stream: Literal[False] = False, **options: Unpack[ChatOptions]) -> Completion: ...
    @overload
    def chat(self, messages: Messages, *, stream: Literal[True], **options: Unpack[StreamOptions]) -> Generation: ...
    @CHAT.shown_by
    def chat(self, messages: Messages, *, stream: bool = False, **options: Unpack[ChatOptions]) -> Completion | Generation:
        """The assistant's answer to a conversation, in the model's own chat template or a named one.

        ``messages``: dicts with "role" and "content", or pairs of these; or a str, which is what the user says next. A
        conversation that the session holds already, with the answers that it gave, is not read again: give the whole of
        it with what is new at its end, or only a str. One that begins behind a text sees that text.
        ``stream=True`` gives a ``Generation``, an iterator over the pieces (without ``draft``); otherwise a ``Completion`` comes back when
        the answer is complete. Options as for ``complete``.
        """
        self._check_open()
        filled = CHAT(options)
        sampler_of(filled)
        check_draft(filled, stream)
        form = form_of(self._model._native, filled)
        live = self._talk is not None and self._talk.at() == self._native.changes
        held = self._talk if self._talk is not None and live else Talk([], None, 0, self._native.position, b"")
        talk = joined(held.all(), messages)
        chat = self._rest_of_chat(talk, held, filled)
        recent = self._read_prompt(chat.read, filled)
        if filled["draft"]:
            completion = self._at_once(filled, recent, form)
            said: Message = ("assistant", completion.text, "")
            self._talk = Talk([*talk, said], None, self._native.changes, held.base, chat.text + completion.text.encode())
            return completion
        answer = Generation(self._native, self._model.tokenizer, filled, recent, form)
        self._talk = Talk(talk, answer, 0, held.base, chat.text)
        return answer if stream else answer.finish(filled["on_text"])

    def _rest_of_chat(self, talk: list[Message], held: Talk, options: Mapping[str, Any]) -> ChatIds:
        """What is to be read of a conversation. A template may write earlier turns another way once there are new ones:
        then tokens from the first that differs are taken back."""
        ids = self.tokens[held.base :].tolist()
        ask: dict[str, Any] = {"template": options["template"], "tools": options["tools"], "continues": held.base > 0}
        chat = chat_ids(self._model._native, talk, held=held.held(), held_ids=ids, **ask)
        end = held.base + chat.keep
        if chat.keep == len(ids):
            return chat
        if end > 0 and self.plan("truncate", end, nearest=True).expected.read_again < end:
            self.truncate(end, progress=options["progress"])
        elif held.base == 0:
            self.clear()
            chat = chat_ids(self._model._native, talk, **ask)
        else:
            raise InvalidArgumentError(
                "the chat template writes the conversation so far another way now, and the memory behind the text in front of "
                "it has moved on; clear() the session first"
            )
        self._talk = Talk([], None, self._native.changes, held.base, b"")
        return chat

    @property
    def logits(self) -> np.ndarray:
        """Logits after the last token, float32 ``[vocabulary]``: a copy, which stays as it is."""
        logits = self._native.logits()
        if logits.size == 0:
            raise InvalidArgumentError(self._native.why_no_logits())
        return logits

    def log_probabilities(self) -> np.ndarray:
        """Log-probability of every token of the vocabulary to come next, float64."""
        logits = self.logits.astype(np.float64)
        logits -= logits.max()
        result: np.ndarray = logits - np.log(np.exp(logits).sum())
        return result

    _talk: Talk | None = None

    def _forked(self, other: Self) -> None:
        if self._talk is not None and self._talk.at() == self._native.changes:
            other._talk = Talk(self._talk.all(), None, other._native.changes, self._talk.base, self._talk.held())

    def _each(self, prompts: Sequence[str], options: Mapping[str, Any]) -> list[Completion]:
        progress = COMPLETE(options)["progress"]
        if isinstance(progress, bool):  # a bar for the prompts instead of one for each
            options = {**options, "progress": None}
        for i, prompt in enumerate(prompts):
            string(prompt, f"prompt[{i}]")
        answers = []
        for prompt in over(prompts, progress, "prompts"):
            with self.fork() as fork:
                answers.append(fork.complete(prompt, **options))
        return answers

    def _ids(self, text: Any, special: bool) -> np.ndarray:
        self._check_open()
        if not isinstance(text, str):
            return token_ids(text)
        continues = self._native.position > 0
        return np.array(self._model._native.encode(utf8(text), None, bool(special), continues), np.int32)

    def _read(self, ids: np.ndarray, progress: Any) -> None:
        with reading(progress) as heard:
            self._native.read(ids, heard)

    def _read_prompt(self, prompt: Any, options: Mapping[str, Any]) -> list[int]:
        """Tokens that the repeat penalty sees."""
        self._check_open()
        recent: list[int] | None = options["history"]
        if prompt is None:
            return recent or []
        ids = self._ids(prompt, True)
        self._read(ids, options["progress"])
        return ids.tolist() if recent is None else recent


def _procedural(filled: dict[str, Any], given: Mapping[str, Any], model: LoadedModel) -> dict[str, Any] | None:
    """The two ways of asking for a memory with a budget, as one dict, with what is known of the model's heads and the text."""
    options, kv_budget = filled["procedural"], filled.pop("kv_budget")
    known = _native.procedural_option_names()
    try:
        check_names(options or {}, known)
    except TypeError as error:
        raise InvalidArgumentError(f"procedural: {error}") from None
    if kv_budget is not None:
        if options and options.get("budget", kv_budget) != kv_budget:
            raise InvalidArgumentError(
                f"kv_budget is {kv_budget} and procedural['budget'] {options['budget']}: give one of them"
            )
        options = {**(options or {}), "budget": kv_budget}
    if options is None:
        return None
    if options.get("budget") and filled["context"]:
        options = {"budget_for": filled["context"], **options}
    if "key_type" in given or "value_type" in given:  # what is said of the rows is not changed by a budget
        options = {"window_type": "as_written", **options}
    return with_heads(options, model)
