"""Is what a model computes what it should compute? Layer by layer, whatever the calls; and if not, what is wrong."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, Iterable

import numpy as np

from kvtide import _native
from kvtide._arguments import file_path, token_ids, whole
from kvtide._loaded import LoadedModel
from kvtide._tested import Golden, Tested
from kvtide.coreml import Model as CoremlModel
from kvtide.errors import InvalidArgumentError
from kvtide.shard import ShardFolder


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: a stable name, where it begins, what was measured and where to look."""

    cause: str
    check: str
    layer: int | None
    token: int | None
    calls: str
    cosine: float
    what: str
    advice: str


@dataclass(frozen=True)
class Check:
    name: str
    outcome: str  # "passed", "failed" or "skipped"
    detail: str


@dataclass(frozen=True)
class Table:
    """Of every layer and token, float32 [layers, tokens]: of what a layer adds, and of the stream behind it."""

    change_cosine: np.ndarray
    change_max_abs: np.ndarray
    sum_cosine: np.ndarray
    sum_max_abs: np.ndarray


@dataclass(frozen=True)
class Schedule:
    """The text read in calls of some lengths. ``isolated`` and ``chained`` are None when layers were not compared."""

    name: str
    calls: list[int]
    isolated: Table | None
    chained: Table | None
    kl_mean: float
    kl_worst: float
    logits_cosine: float
    logits_max_abs: float
    top_same: int
    top_asked: int
    same_bits: bool


class Report:
    """What ``validate`` found. It is true when everything passed; as text it is what the command prints."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.passed: bool = said["passed"]
        self.model: str = said["model"]
        self.reference: str = said["reference"]
        self.arithmetic: str = said["arithmetic"]
        self.tokens: list[int] = said["tokens"]
        self.gate: float = said["gate"]
        self.findings = [Finding(**item) for item in said["findings"]]
        self.checks = [Check(**item) for item in said["checks"]]
        self.schedules = [
            Schedule(**{**item, "isolated": _table(item["isolated"]), "chained": _table(item["chained"])})
            for item in said["schedules"]
        ]
        self.apart: list[dict[str, Any]] = said["apart"]
        self.notes: dict[str, str] = dict(said["notes"])
        self.html: str = said["html"]
        self._text: str = said["text"]

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        causes = ", ".join(finding.cause for finding in self.findings)
        return f"<kvtide.Report: {self.model} {'passed' if self.passed else 'failed: ' + causes}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """As a page (.html) or text (anything else)."""
        name = os.fspath(path)
        with open(name, "wb") as file:
            file.write((self.html if name.endswith((".html", ".htm")) else self._text).encode())


def _table(said: dict[str, Any]) -> Table | None:
    if not said["change_cosine"]:
        return None
    shape = said["layers"], said["tokens"]
    names = "change_cosine", "change_max_abs", "sum_cosine", "sum_max_abs"
    return Table(*(np.frombuffer(said[name], np.float32).reshape(shape) for name in names))


def validate(
    model: Any,
    reference: Any = None,
    tokens: Iterable[int] | None = None,
    *,
    count: int = 64,
    chunks: Iterable[int] = (1, 2, 3, 4, 7),
    gate: float | None = None,
    free: int = 16,
    special: Iterable[int] = (),
    length: int = 0,
    progress: Callable[[float, str], Any] | None = None,
    exact: bool | None = None,
    key_type: str = "f16",
    value_type: str = "f16",
    threads: int | None = None,
    kernels: str = "",
) -> Report:
    """Compares a model with a reference; see docs/validator.md.

    ``model``: a ``kvtide.Model``, a ``kvtide.ShardFolder``, a ``kvtide.coreml.Model`` or the path of Core ML packages (they
    need a ``reference``), or any object with ``make_state()`` and ``predict(tokens,
    state)``, or a function of the whole text. ``reference``: None for a plain float32 forward pass of the weights under
    test, a ``kvtide.Model``, a ``kvtide.ShardFolder``, a path (a GGUF file, a Hugging Face folder, shards, golden arrays),
    or a function of the whole text. ``tokens``: the text, three at least; at most ``count`` are read, once in calls of each
    of ``chunks``. ``gate``: the cosine that every layer and token must reach. ``free``: greedy tokens that are
    compared. ``length``: tokens of a second, longer text that is read once in calls of mixed lengths, to pass windows and
    reach positions that ``count`` does not; 0: none. ``progress(share, what)``: False stops with a CancelledError. The rest is for a ``kvtide.Model``; ``exact=None``: f32
    activations where all its weights are floats, the arithmetic of every day where they are not.
    """
    ids = [] if tokens is None else token_ids(tokens).tolist()
    count = whole(count, "count", 3, 4096)
    lengths = [whole(chunk, "chunks", 1, 4096) for chunk in chunks]
    if not lengths:
        raise InvalidArgumentError("chunks: at least one length of calls is needed")
    if gate is not None and not 0.0 <= gate <= 1.0:
        raise InvalidArgumentError(f"gate must be between 0 and 1, not {gate}")
    if isinstance(reference, ShardFolder):
        reference = reference.path
    packages = model if isinstance(model, (str, os.PathLike)) else model.path if isinstance(model, CoremlModel) else None
    if isinstance(reference, LoadedModel) and (packages is not None or isinstance(model, (LoadedModel, ShardFolder))):
        reference = reference.path
    is_path = isinstance(reference, (str, bytes, os.PathLike))
    folder = file_path(reference) if is_path else b""
    common = lengths, gate, whole(free, "free", 0, 4096), token_ids(special).tolist(), whole(length, "length", 0, 65536), progress
    workers = 0 if threads is None else whole(threads, "threads", 1, 256)
    if isinstance(model, (LoadedModel, ShardFolder)) and reference is not None and not is_path:
        raise InvalidArgumentError("a model of kvtide is compared with its own plain forward pass, a path, or another model")
    if packages is not None:
        if not is_path:
            raise InvalidArgumentError("packages are compared with the model that they were made from: give its path, or a kvtide.Model")
        return Report(_native.validate_packages(file_path(packages), folder, ids, count, workers, kernels, *common))
    if isinstance(model, ShardFolder):
        return Report(_native.validate_shards(file_path(model.path), folder, ids, count, workers, kernels, *common))
    if isinstance(model, LoadedModel):
        return Report(_native.validate_model(
            model._native, folder, ids, count, None if exact is None else bool(exact), key_type, value_type, workers,
            kernels, *common,
        ))  # fmt: skip
    if reference is None:
        raise InvalidArgumentError("a reference is needed: a path, a kvtide.Model or a function of tokens")
    if not ids and not (is_path and _native.brings_text(folder)):
        raise InvalidArgumentError("tokens are needed: only a folder of golden arrays says which text is read")
    golden = None if is_path else reference._native if isinstance(reference, LoadedModel) else Golden(reference)
    first = ids[0] if ids else 0
    return Report(_native.validate_object(Tested(model, first), golden, folder, ids, count, *common))
