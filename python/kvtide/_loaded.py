"""A loaded model without what is made from it: weights, vocabulary and chat template.

Sessions are built on this, and kvtide.Model, which makes sessions, on both.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from kvtide import _native
from kvtide._arguments import byte_count, file_path, size_text, string, whole
from kvtide._cache_folder import made, place_of, weights_folder
from kvtide._closing import Closing
from kvtide._hub import hub_model
from kvtide._models_folder import model_path
from kvtide._options import Progress, progress_option
from kvtide._progress import reading
from kvtide.tokenizer import Tokenizer, chat_ids, messages_of

if TYPE_CHECKING:
    from typing_extensions import Self


class PackedUse(NamedTuple):
    """Where the packed weights of a model are."""

    file: str | None
    """Mapped from this file, whose pages all processes share; None: in this process's own memory."""
    made: bool
    """The file was made by this load."""
    nbytes: int
    """Bytes of the file."""
    notes: list[str]
    """Which file was of no use, and why."""


class LoadedModel(Closing):
    """What sessions need of a ``kvtide.Model``."""

    _native: _native.Model
    _kind = "model"
    _cache_place: bytes
    _said_unknown = False  # that nothing is known of its heads

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        map_file: bool = True,
        cache: bool | str | os.PathLike[str] = True,
        cache_limit: int | str = "32G",
        packed: str | os.PathLike[str] | None = None,
        context: int | None = None,
    ) -> None:
        """See ``load``."""
        self._cache_place = place_of(cache)
        self._native = _native.Model(
            model_path(path),
            0 if threads is None else whole(threads, "threads", 1, 256),
            bool(map_file),
            weights_folder(cache),
            byte_count(cache_limit, "cache_limit"),
            b"" if packed is None else file_path(packed),
            0 if context is None else whole(context, "context", 1, 1 << 31),
        )
        for note in self.packed.notes:
            logging.getLogger("kvtide").warning("%s", note)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        map_file: bool = True,
        cache: bool | str | os.PathLike[str] = True,
        cache_limit: int | str = "32G",
        packed: str | os.PathLike[str] | None = None,
        context: int | None = None,
    ) -> Self:
        """Loads a model, without holding the GIL.

        ``path``: a GGUF file or a Hugging Face folder, or the name of a model that was fetched, or its beginning:
        "gemma3" after ``kvtide fetch gemma3``. Names are looked for in $KVTIDE_MODELS, or ~/.cache/kvtide/models. Or what
        another program has: "hf:ORG/NAME", "ollama:NAME", "lmstudio:ORG/NAME".
        ``threads``: for loading; None: as many as the machine has. ``map_file=False`` copies the file into memory,
        which makes it immune to other programs that shorten it.

        ``cache``: whether packed weights are kept in ~/.cache/kvtide/weights, or in which folder: the next load maps
        them, in a moment, and shares their pages with other processes. At most ``cache_limit`` bytes: what was used
        longest ago goes. ``packed``: a file that ``kvtide pack`` made. A file that is of no use is made anew or left
        out; the logger "kvtide" tells.

        ``context``: the longest text that sessions will hold (None: what the model was trained for). It matters to models
        that rotate short and long texts differently (longrope, as Phi 3.5). Raises NotFoundError, BadFormatError,
        UnsupportedError, NumericError (NaN or infinity in the weights), IoError, OutOfMemoryError.
        """
        return cls(
            path, threads=threads, map_file=map_file, cache=cache, cache_limit=cache_limit, packed=packed,
            context=context,
        )  # fmt: skip

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str | os.PathLike[str],
        *,
        filename: str | None = None,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
        token: str | bool | None = None,
        **load: Any,
    ) -> Self:
        """A model of the Hugging Face Hub, "ORG/NAME"; a path that exists wins.

        With huggingface_hub installed, what is missing in the hub's cache is downloaded into it (not with
        ``local_files_only`` or $HF_HUB_OFFLINE); without it the cache is looked into. ``filename``: one of several GGUF
        files. ``revision``: a branch, a tag or a commit (None: main). ``cache_dir``: None: the cache of all programs.
        ``load``: further options of ``load``. Raises NotFoundError, InvalidArgumentError (several files; it lists them), IoError
        (the network), and what ``load`` raises.
        """
        if os.path.exists(repo_id):
            return cls.load(repo_id, **load)
        name = string(os.fspath(repo_id), "repo_id")
        file = None if filename is None else string(filename, "filename")
        commit = None if revision is None else string(revision, "revision")
        path = hub_model(name, file, commit, cache_dir, bool(local_files_only), token)
        return cls.load(os.fsdecode(path), **load)

    @property
    def path(self) -> str:
        return os.fsdecode(self._native.path)

    @property
    def name(self) -> str:
        """The name in the file, or the file's name."""
        return self._native.name.decode(errors="replace")

    @property
    def title(self) -> str:
        """The name as people know it: that of the file, unless it says how the model was trained instead."""
        return self._native.title.decode(errors="replace")

    @property
    def notes(self) -> list[str]:
        """What its files contradict each other in, and what was taken. Empty for most models."""
        return [note.decode(errors="replace") for note in self._native.notes]

    @property
    def packed(self) -> PackedUse:
        """Where the packed weights are."""
        file, made, nbytes, notes = self._native.packed
        return PackedUse(os.fsdecode(file) or None, made, nbytes, [note.decode(errors="replace") for note in notes])

    @property
    def architecture(self) -> str:
        """'llama', 'gemma3', ..."""
        return self._native.architecture

    @property
    def context_length(self) -> int:
        """Tokens that the model was trained to see."""
        return self._native.context_length

    @property
    def vocabulary(self) -> int:
        """Number of tokens, the length of a row of logits."""
        return self._native.vocabulary

    @property
    def parameters(self) -> int:
        """Elements of all tensors."""
        return self._native.parameters

    @property
    def layers(self) -> int:
        return self._native.layers

    @property
    def nbytes(self) -> int:
        """Bytes of the weights in memory, packed or mapped."""
        return self._native.weights_bytes

    @property
    def chat_template(self) -> str:
        """The file's chat template; empty: none."""
        return self._native.chat_template.decode(errors="replace")

    def measure_heads(
        self, *, threads: int | None = None, progress: Progress = None
    ) -> tuple[int, list[tuple[float, float, float, float]]]:
        """Measures which heads copy from the past: procedural memories keep every row of those. It takes as long as writing
        3,000 tokens, and is kept in the cache folder of ``load``: sessions made from then on use it, as the program does.

        Gives the KV heads of a layer, and (induction, share, output_norm, worth) of every head of every layer. For the two
        models of ``kvtide fetch`` it came with the package, and no session needs this call. Raises UnsupportedError for models
        whose layers differ, CancelledError.
        """
        with reading(progress_option(progress, "progress"), "measuring heads", "") as heard:
            table = _native.measure_heads(
                self._native, 0 if threads is None else whole(threads, "threads", 1, 256), made(self._cache_place), heard
            )
        return table[0], table[1]

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self._native)

    def encode_chat(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        template: str | None = None,
        open_answer: bool = True,
        continues: bool = False,
    ) -> list[int]:
        """Ids of a conversation, as the model wants it written down.

        ``messages``: dicts with "role" ("system", "user", "assistant" or "tool"), "content" and whatever else the template
        knows, or pairs of role and content. What they hold is never read as a marker. ``tools``: dicts of JSON schema.
        ``template``: one of ``Model.chat_template_names()``, or the source of one; None: the model's own. ``open_answer``:
        end with what starts the assistant's answer. ``continues``: the conversation goes on behind other text, so no
        beginning-of-text token belongs in front.
        """
        return chat_ids(
            self._native, messages_of(messages), template=template, tools=tools, open_answer=open_answer, continues=continues
        ).read

    def apply_chat_template(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
    ) -> list[int] | str:
        """``Tokenizer.apply_chat_template``."""
        return self.tokenizer.apply_chat_template(
            messages, tools, tokenize=tokenize, add_generation_prompt=add_generation_prompt, chat_template=chat_template
        )

    @staticmethod
    def chat_template_names() -> list[str]:
        """The chat templates that kvtide brings for models without one."""
        return _native.chat_template_names()

    def __repr__(self) -> str:
        if self.closed:
            return "<kvtide.Model, closed>"
        return (
            f"<kvtide.Model {self.title!r}: {self.architecture}, {self.parameters:,} parameters, "
            f"{size_text(self.nbytes)}, trained for {self.context_length} tokens>"
        )
