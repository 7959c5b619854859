"""Core ML models on any machine, called the way coremltools calls them.

    import kvtide.coreml as ct                       # was: import coremltools as ct

    model = ct.models.MLModel("model.mlpackage")
    state = model.make_state()
    logits = model.predict({"input_ids": ids, "attention_mask": mask}, state=state)["logits"]
    state.read_state("keyCache")                     # a NumPy array

Packages (.mlpackage), compiled models (.mlmodelc) and MIL text are read. Values are rounded to the types that the program
declares and sums are made in float32; the bits are not claimed to be those of Apple's runtime.
"""

from __future__ import annotations

import enum
import json
import os
from typing import Any, Callable, Mapping, NamedTuple, Sequence, overload

import numpy as np

from kvtide import _native
from kvtide._arguments import file_path, size_text, string, whole
from kvtide._closing import Closing
from kvtide._coreml_arrays import packed
from kvtide._coreml_features import Feature, FunctionDescription, Metadata, ModelDescription, Spec, features
from kvtide._loaded import LoadedModel
from kvtide.errors import InvalidArgumentError

__all__ = [
    "CompiledMLModel", "ComputeUnit", "Feature", "Finding", "MLModel", "MLState", "Model", "Report", "Spec", "State",
    "export", "inspect", "lint", "models",
]  # fmt: skip


class ComputeUnit(enum.Enum):
    """coremltools' names. kvtide computes on the CPU whatever is chosen."""

    ALL = 1
    CPU_AND_GPU = 2
    CPU_ONLY = 3
    CPU_AND_NE = 4


class Finding(NamedTuple):
    """One sentence of lint; docs/coreml.md explains the rules. ``line`` is 0 where no operation is meant."""

    severity: str
    rule: str
    function: str
    operation: str
    line: int
    message: str


class Report(NamedTuple):
    """What the calls of a model have cost. ``state_bytes_copied`` is 0 when every write went to where the state lies."""

    calls: int
    seconds: float
    state_bytes_copied: int
    weight_bytes: int


def lint(
    path: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    run: bool = False,
    threads: int | None = None,
) -> list[Finding]:
    """What is wrong with a package, or a folder of several, as far as programs say, the worst first.

    ``tokenizer``: a folder whose config.json and tokenizer.json are compared, too. ``run``: a short text is also read, cut
    into calls in two ways. Raises NotFoundError, BadFormatError, UnsupportedError.
    """
    folder = b"" if tokenizer is None else file_path(tokenizer)
    workers = 0 if threads is None else whole(threads, "threads", 1, 256)
    found: Any = _native.coreml_lint(file_path(path), folder, bool(run), workers)
    return [Finding(*each) for each in found]


def export(
    model: Any,
    path: str | os.PathLike[str],
    *,
    chunks: int | str = 0,
    tokens: tuple[int, int] | Sequence[int] = (1, 4),
    slots: int | None = None,
    weights: str = "f16",
    replace: bool = False,
    threads: int | None = None,
    progress: Callable[[str], Any] | None = None,
) -> str:
    """Writes stateful packages of a model, and gives ``path``, which appears complete or not at all.

    ``model``: a ``kvtide.Model``, a GGUF file or a Hugging Face folder. ``chunks``: 0 for one package, N or ``"per-layer"``
    for a folder of several. ``tokens`` of a call: a tuple (least, most), or a list of the only numbers that it takes.
    ``slots``: positions of the states; None: 2048, or as many as the model has learned. ``weights``: ``f16``,
    ``int8-tensor``, ``int8-channel``, ``int4``. ``progress(package)`` is called before each. Raises InvalidArgumentError
    (``path`` holds something, and not ``replace``), UnsupportedError (an architecture that is not written), NumericError.
    """
    source = model.path if isinstance(model, LoadedModel) else model
    if isinstance(chunks, str):
        if chunks != "per-layer":
            raise InvalidArgumentError(f'chunks must be a number or "per-layer", not {chunks!r}')
        chunks = -1
    else:
        chunks = whole(chunks, "chunks", 0, 4096)
    sizes = [whole(each, "tokens", 1, 65536) for each in tokens]
    listed = not isinstance(tokens, tuple)
    if not sizes or not (listed or len(sizes) == 2):
        raise InvalidArgumentError("tokens must be a tuple (least, most) or a list of sizes")
    least, most = (1, 4) if listed else sizes
    _native.coreml_export(
        file_path(source),
        file_path(path),
        chunks,
        least,
        most,
        sizes if listed else [],
        0 if slots is None else whole(slots, "slots", 1, 1 << 20),
        string(weights, "weights"),
        bool(replace),
        0 if threads is None else whole(threads, "threads", 1, 256),
        progress,
    )
    return os.fspath(path)


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a package holds: functions with inputs, outputs, states and operations by count; weights by type; metadata. The
    same as ``kvtide coreml inspect --json``; packages with operations that cannot be run are shown, too."""
    report: dict[str, Any] = json.loads(_native.coreml_inspect(file_path(path)))
    return report


class State:
    """The states of one sequence, by name. Any model that has states of these names, shapes and types takes it."""

    def __init__(self, native: Any, kept: Mapping[str, Feature]) -> None:
        self._native = native
        self._features = dict(kept)

    @property
    def state_names(self) -> list[str]:
        return list(self._features)

    @property
    def description(self) -> dict[str, Feature]:
        """Shapes and dtypes by name."""
        return dict(self._features)

    @property
    def nbytes(self) -> int:
        size: int = self._native.nbytes
        return size

    def read_state(self, name: str) -> np.ndarray:
        """A copy of what the state holds. Raises InvalidArgumentError: no such state; BusyError: during a call."""
        array: np.ndarray = self._native.read(string(name, "name"))
        return array

    def write_state(self, name: str, value: Any) -> None:
        """Replaces it by an array or tensor of its shape; floats of another type are rounded. InvalidArgumentError otherwise,
        and nothing is changed."""
        feature = self._features.get(string(name, "name"))
        if feature is None:
            raise InvalidArgumentError(f"no state {name!r}; there are: {', '.join(self._features) or 'none'}")
        self._native.write(*packed(value, feature, "state"))

    def fork(self) -> State:
        """A copy that goes its own way; also what ``copy.copy`` makes."""
        return State(self._native.fork(), self._features)

    __copy__ = fork

    def __deepcopy__(self, memo: Any) -> State:
        return self.fork()

    def __repr__(self) -> str:
        texts = [f"{each.name} {each.dtype} {list(each.shape)}" for each in self._features.values()]
        return f"<kvtide.coreml.State: {', '.join(texts) or 'empty'}, {size_text(self.nbytes)}>"


def _state(state: Any) -> State:
    if not isinstance(state, State):
        raise TypeError(f"state must be what make_state() gives, not {type(state).__name__}")
    return state


class Model(Closing):
    """A package with one function or several; each call names its own or runs that of ``function_name``.

    One caller at a time; a second one gets a BusyError. Calls give up the GIL and listen to Ctrl-C and ``cancel()``. A call that
    raises has changed no state.
    """

    _kind = "model"

    def __init__(
        self,
        path: str | os.PathLike[str],
        function_name: str | None = None,
        *,
        threads: int | None = None,
        kernels: str | None = None,
        compute_units: Any = None,
        skip_model_load: bool = False,
        optimization_hints: Any = None,
    ) -> None:
        """``function_name``: load this function only (None: all, and run the package's default). ``threads``: None: as many as
        the machine has. The last three are coremltools': where and how Apple's runtime computes means nothing to a CPU, and
        a model that was loaded can be called whatever ``skip_model_load`` says.

        Raises NotFoundError, BadFormatError, UnsupportedError (with all operations that kvtide does not have).
        """
        name = "" if function_name is None else string(function_name, "function_name")
        self.path = os.fspath(path)
        self._native: Any = _native.CoremlModel(
            file_path(path),
            name,
            0 if threads is None else whole(threads, "threads", 1, 256),
            "" if kernels is None else string(kernels, "kernels"),
        )
        self.function_name: str = name or self._native.default_function
        self._inputs: dict[str, dict[str, Feature]] = {}

    @property
    def functions(self) -> list[str]:
        """Names of all functions of the package."""
        names: list[str] = self._native.functions
        return names

    def _called(self, function_name: str | None) -> str:
        return self.function_name if function_name is None else string(function_name, "function_name")

    def _inputs_of(self, function: str) -> dict[str, Feature]:
        if function not in self._inputs:
            self._inputs[function] = features(self._native.inputs(function))
        return self._inputs[function]

    @property
    def input_description(self) -> dict[str, Feature]:
        return dict(self._inputs_of(self.function_name))

    @property
    def output_description(self) -> dict[str, Feature]:
        return features(self._native.outputs(self.function_name))

    @property
    def state_description(self) -> dict[str, Feature]:
        return features(self._native.states(self.function_name))

    @property
    def user_defined_metadata(self) -> dict[str, str]:
        """What the exporter wrote: the tokenizer's name, a context length."""
        texts: dict[str, str] = self._native.metadata
        return texts

    def get_spec(self) -> Spec:
        """Inputs, outputs, states, functions and metadata under coremltools' names; plain tuples, not protobuf."""
        native, report = self._native, inspect(self.path)

        def described(name: str) -> FunctionDescription:
            lists = (native.inputs(name), native.outputs(name), native.states(name))
            return FunctionDescription(name, *(tuple(features(each).values()) for each in lists))

        metadata = Metadata(
            report["description"], report["version"], report["author"], report["license"], self.user_defined_metadata
        )
        mine = described(self.function_name)
        functions = tuple(described(name) for name in self.functions)
        description = ModelDescription(*mine[1:], functions, native.default_function, metadata)
        return Spec(report["specification"], description)

    def make_state(self, function_name: str | None = None) -> State:
        """Zeros for the states of a function; empty for one without."""
        name = self._called(function_name)
        return State(self._native.make_state(name), features(self._native.states(name)))

    def make_state_from(self, state: State, position: int, function_name: str | None = None) -> State:
        """What ``state`` holds of the first ``position`` tokens, in states of this model, which may be longer or shorter.

        The state may come from another package of the same model. Of each state one axis may differ, that of the tokens. From this
        model's own state it takes tokens back: a counter of one element becomes ``position``, and rows behind it wait to be
        written again. Raises InvalidArgumentError, ContextFullError (no room for so many).
        """
        name = self._called(function_name)
        made = self._native.make_state_from(_state(state)._native, whole(position, "position", 0, 1 << 40), name)
        return State(made, features(self._native.states(name)))

    def save_state(self, state: State, path: str | os.PathLike[str]) -> None:
        """A snapshot: a safetensors file with an array for each state, bound to this package. The file appears complete or
        not at all."""
        self._native.save_state(_state(state)._native, file_path(path))

    def load_state(self, path: str | os.PathLike[str], function_name: str | None = None) -> State:
        """What ``save_state`` wrote. Raises NotFoundError, BadFormatError, InvalidArgumentError (of another package)."""
        name = self._called(function_name)
        return State(self._native.load_state(file_path(path), name), features(self._native.states(name)))

    @overload
    def predict(
        self, data: Mapping[str, Any], state: State | None = None, *, function_name: str | None = None
    ) -> dict[str, np.ndarray]: ...
    @overload
    def predict(
        self, data: Sequence[Mapping[str, Any]], state: None = None, *, function_name: str | None = None
    ) -> list[dict[str, np.ndarray]]: ...
    def predict(
        self,
        data: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        state: State | None = None,
        *,
        function_name: str | None = None,
    ) -> dict[str, np.ndarray] | list[dict[str, np.ndarray]]:
        """Outputs by name, of the dtypes that the model declares.

        ``data``: an array, a list of numbers or a tensor for every input; whole numbers may come as floats. A list of such
        dicts gives a list, of functions without states. Raises InvalidArgumentError (inputs or a state that do not fit), CancelledError.
        """
        self._check_open()
        if not isinstance(data, Mapping):
            if isinstance(data, (str, bytes)) or not isinstance(data, Sequence):
                raise TypeError(f"data must be a dict of arrays by the names of inputs, not {type(data).__name__}")
            if state is not None:
                raise InvalidArgumentError("a list of inputs takes no state: call predict once for each, in order")
            return [self.predict(each, function_name=function_name) for each in data]
        if state is not None:
            _state(state)
        name = self._called(function_name)
        known = self._inputs_of(name)
        given = []
        for key, value in data.items():
            feature = known.get(string(key, "the name of an input"))
            if feature is None:
                raise InvalidArgumentError(f"function {name} has no input {key!r}; its inputs: {', '.join(known) or 'none'}")
            given.append(packed(value, feature, "input"))
        outputs: dict[str, np.ndarray] = self._native.predict(given, None if state is None else state._native, name)
        return outputs

    def cancel(self) -> None:
        """Ends the call that another thread is in with a CancelledError."""
        self._native.cancel()

    def lint(self, *, tokenizer: str | os.PathLike[str] | None = None, run: bool = False) -> list[Finding]:
        return lint(self.path, tokenizer=tokenizer, run=run)

    def inspect(self) -> dict[str, Any]:
        return inspect(self.path)

    @property
    def report(self) -> Report:
        """What the calls have cost so far."""
        return Report(*self._native.report)

    def __repr__(self) -> str:
        if self.closed:
            return "<kvtide.coreml.Model, closed>"
        return f"<kvtide.coreml.Model {os.path.basename(self.path)!r}: {', '.join(self.functions)}>"


MLModel = CompiledMLModel = Model
MLState = State


class models:
    """coremltools' ``models``."""

    MLModel = Model
    CompiledMLModel = Model
