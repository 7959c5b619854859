"""Python objects as models under test and as references, in the one form that the native module asks for."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import numpy as np

from kvtide.errors import InvalidArgumentError


def array(value: Any, what: str, axes: int | tuple[int, ...]) -> np.ndarray:
    """A C-contiguous float32 array; PyTorch tensors come as they are."""
    if hasattr(value, "detach"):
        value = value.detach().to("cpu").float().numpy()
    made = np.ascontiguousarray(value, dtype=np.float32)
    allowed = (axes,) if isinstance(axes, int) else axes
    if made.ndim not in allowed:
        raise InvalidArgumentError(f"{what} must have {' or '.join(map(str, allowed))} axes, not shape {made.shape}")
    return made


def _positional(call: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # of an extension module, perhaps
        return 2
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _takes(call: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(call).parameters
    except (TypeError, ValueError):
        return False


def _parts(result: Any, what: str) -> tuple[np.ndarray | None, np.ndarray]:
    """Residual stream and logits of what a model gave."""
    if isinstance(result, dict):
        if "logits" not in result:
            raise InvalidArgumentError(f"{what} gave a dict without 'logits', but with {sorted(map(str, result))}")
        hidden = result.get("hidden")
        return None if hidden is None else array(hidden, "hidden", 3), array(result["logits"], "logits", (1, 2))
    return None, array(result, "logits", (1, 2))


class Tested:
    """What the native module calls. `model` is an object with make_state() and predict(tokens, state), or a function of
    the whole text, whose state then is the text."""

    def __init__(self, model: Any, first_token: int):
        self._model = model
        self._predict = model.predict if hasattr(model, "predict") else model
        if not callable(self._predict):
            raise TypeError(f"a model under test is callable or has predict(), unlike {type(model).__name__}")
        self._stateless = not hasattr(model, "make_state")
        if self._stateless and _positional(self._predict) > 1:
            raise TypeError("a model whose predict() takes a state must also have make_state()")
        self._sized = not self._stateless and _positional(model.make_state) > 0
        self._feeds = _takes(self._predict, "inputs")
        self._first = first_token

    def _can(self, *names: str) -> bool:
        return not self._stateless and all(hasattr(self._model, name) for name in names)

    def shape(self) -> dict[str, Any]:
        """Measured: one token is read."""
        state = self.make_state(16)
        hidden, logits = self.read(state, [self._first], None)
        layers: list[tuple[int, int, int | None]] = []
        rows = self._can("rows")
        if hidden is not None:
            windows = getattr(self._model, "windows", None)
            for layer in range(hidden.shape[0] - 1):
                heads, _, dim = self.rows(state, layer)[0].shape if rows else (0, 0, 0)
                layers.append((heads, dim, windows[layer] if windows else None))
        return {
            "name": str(getattr(self._model, "name", None) or getattr(self._model, "__name__", type(self._model).__name__)),
            "layers": layers,
            "width": 0 if hidden is None else hidden.shape[2],
            "vocab": logits.shape[-1],
            "largest_chunk": int(getattr(self._model, "largest_chunk", 0)),
            "gives_hidden": hidden is not None,
            "isolates": hidden is not None and self._feeds,
            "gives_rows": rows and hidden is not None,
            "truncates": self._stateless or self._can("truncate"),
            "forks": self._stateless or self._can("fork"),
            "snapshots": self._can("snapshot", "restore"),
            "poisons": self._can("poison"),
            "keeps_capacity": self._sized,
        }

    def make_state(self, capacity: int) -> Any:
        if self._stateless:
            return []
        return self._model.make_state(capacity) if self._sized else self._model.make_state()

    def read(self, state: Any, tokens: list[int], inputs: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray]:
        if self._stateless:
            state.extend(tokens)
            hidden, logits = _parts(self._predict(list(state)), "the model")
            if hidden is not None:
                hidden = np.ascontiguousarray(hidden[:, -len(tokens) :])
            return hidden, np.ascontiguousarray(logits[-len(tokens) :]) if logits.ndim == 2 else logits
        more = {} if inputs is None else {"inputs": inputs}
        return _parts(self._predict(tokens, state, **more), "the model")

    def rows(self, state: Any, layer: int) -> tuple[np.ndarray, np.ndarray]:
        keys, values = self._model.rows(state, layer)
        keys, values = array(keys, "keys", 3), array(values, "values", 3)
        if keys.shape != values.shape:
            raise InvalidArgumentError(f"rows: keys have shape {keys.shape}, values {values.shape}")
        return keys, values

    def truncate(self, state: Any, length: int) -> Any:
        if self._stateless:
            del state[length:]
            return state
        other = self._model.truncate(state, length)
        return state if other is None else other

    def fork(self, state: Any) -> Any:
        return list(state) if self._stateless else self._model.fork(state)

    def through_snapshot(self, state: Any) -> Any:
        return self._model.restore(self._model.snapshot(state))

    def poison(self, state: Any, value: float) -> None:
        self._model.poison(state, value)


class Golden:
    """What the native module calls of a reference: an object with run(tokens), or a function of tokens."""

    def __init__(self, reference: Any):
        self._run = reference.run if hasattr(reference, "run") else reference
        if not callable(self._run):
            raise TypeError(f"a reference is a folder, a kvtide.Model or callable, unlike {type(reference).__name__}")
        self.name = str(getattr(reference, "name", None) or getattr(reference, "__name__", type(reference).__name__))

    def run(self, tokens: list[int]) -> dict[str, Any]:
        result = self._run(tokens)
        result = dict(result) if isinstance(result, dict) else {"logits": result}
        hidden, logits = result.get("hidden"), result.get("logits")
        hidden = None if hidden is None else array(hidden, "the reference's hidden", 3)
        logits = None if logits is None else array(logits, "the reference's logits", 2)
        count = len(tokens)
        if hidden is None and logits is None:
            raise InvalidArgumentError("the reference gave neither 'hidden' nor 'logits'")
        if hidden is not None and hidden.shape[1] != count:
            raise InvalidArgumentError(f"the reference's hidden has shape {hidden.shape} for {count} tokens")
        if logits is not None and logits.shape[0] != count:
            raise InvalidArgumentError(f"the reference's logits have shape {logits.shape} for {count} tokens")
        layers = 0 if hidden is None else hidden.shape[0] - 1
        keys, values = result.get("keys"), result.get("values")
        rows = []
        if keys is not None and values is not None:
            if len(keys) != layers or len(values) != layers:
                raise InvalidArgumentError(f"the reference gave rows of {len(keys)} layers, but has {layers}")
            for key, value in zip(keys, values):
                pair = array(key, "the reference's keys", 3), array(value, "the reference's values", 3)
                if pair[0].shape != pair[1].shape or pair[0].shape[1] != count:
                    raise InvalidArgumentError(f"the reference's rows have shapes {pair[0].shape} and {pair[1].shape}")
                rows.append(pair)
        frequencies = result.get("frequencies")
        return {
            "layers": layers,
            "width": 0 if hidden is None else hidden.shape[2],
            "vocab": 0 if logits is None else logits.shape[1],
            "hidden": hidden,
            "logits": logits,
            "rows": rows,
            "frequencies": [] if frequencies is None else [[float(f) for f in one] for one in frequencies],
        }
