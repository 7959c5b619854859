"""A model driven the way exported stateful models are: ids and a mask in, logits out, the state as named arrays.

    stateful = kvtide.StatefulModel(model)
    logits = stateful.predict(prompt, np.ones(len(prompt)))              # the whole prompt, once
    while (token := int(logits.argmax())) != model.tokenizer.eos:
        logits = stateful.predict([token], np.ones(stateful.past_length + 1))
"""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from kvtide import _native
from kvtide._arguments import string, token_ids, whole
from kvtide._loaded import LoadedModel
from kvtide.errors import InvalidArgumentError

_DTYPES = {"f16": np.dtype(np.float16), "f32": np.dtype(np.float32)}
_NAMES = ("keyCache", "valueCache", "pastLen")


def _row(value: Any, name: str) -> np.ndarray:
    """One sequence: [n], or [1, n] as exported models take it."""
    array = np.asarray(value)
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape [1, n] or [n], not {list(array.shape)}")
    if array.dtype.kind == "f" and np.array_equal(array, np.trunc(array)) and np.abs(array).max(initial=0) < 2**31:
        array = array.astype(np.int64)  # masks often come as floats
    if array.dtype.kind == "b":
        array = array.astype(np.int32)
    return token_ids(array)


class StatefulArrays(dict[str, np.ndarray]):
    """keyCache, valueCache and pastLen, and ``model``: the SHA-256 of the files of the model that wrote them, or ''."""

    def __init__(self, arrays: Mapping[str, np.ndarray], model: str = "") -> None:
        super().__init__(arrays)
        self.model = model


class StatefulModel:
    """One sequence of a model. A call that raises has changed nothing.

    The attention mask covers all that is active: what the state holds and what the call adds. One of another length is
    refused with an explanation, because a mask of the call's own tokens hides the state from them, and every token but
    the first comes out wrong.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        context: int | None = None,
        exact: bool = False,
        key_type: str = "f16",
        value_type: str = "f16",
        threads: int | None = None,
        kernels: str | None = None,
    ) -> None:
        """``context``: positions that the state holds (None: what the model was trained for); the rest as for
        ``kvtide.Session``. Raises InvalidArgumentError for models whose state is more than keyCache, valueCache and
        pastLen: sliding windows, convolved queries and keys.
        """
        if not isinstance(model, LoadedModel):
            raise TypeError(f"model must be a kvtide.Model, not {type(model).__name__}")
        self._native: Any = _native.StatefulModel(
            model._native,
            context=0 if context is None else whole(context, "context", 1),
            exact=bool(exact),
            key_type=string(key_type, "key_type"),
            value_type=string(value_type, "value_type"),
            threads=0 if threads is None else whole(threads, "threads", 1, 256),
            kernels="" if kernels is None else string(kernels, "kernels"),
        )

    def predict(self, input_ids: Any, attention_mask: Any) -> np.ndarray:
        """Logits of the last position, float32 [vocabulary].

        ``input_ids`` [n] or [1, n]: the whole prompt first, then what follows. ``attention_mask``: a 1 for every active
        token, ``past_length + n`` of them. Raises InvalidArgumentError (a mask of another length or with a 0),
        ContextFullError (positions that the model or the state does not have; they are never shifted).
        """
        logits: np.ndarray = self._native.predict(_row(input_ids, "input_ids"), _row(attention_mask, "attention_mask"))
        return logits

    @property
    def past_length(self) -> int:
        """Positions read."""
        past: int = self._native.past_length
        return past

    def state(self) -> StatefulArrays:
        """A copy: keyCache and valueCache [layers, 1, kv_heads, context, head_dim], float16 (float32 where the memory is
        f32 or q8_0), and pastLen [1], int32, which is exact at any length. Rows nobody wrote are zeros. The dict names
        its ``model``, whose files are hashed once for that."""
        keys, values, shape, past, model = self._native.state()
        dtypes = [_DTYPES[name] for name in self._native.dtypes]
        arrays = [part.view(dtype).reshape(shape) for part, dtype in zip((keys, values), dtypes, strict=True)]
        named = {"keyCache": arrays[0], "valueCache": arrays[1], "pastLen": np.array([past], np.int32)}
        return StatefulArrays(named, model)

    def set_state(self, state: Mapping[str, Any], tokens: Any) -> None:
        """Goes on from such arrays, of any number of rows; ``tokens``: the ids that were read into them. Raises
        InvalidArgumentError, also for what ``state()`` of another model gave; arrays in a plain dict are taken for this
        model's."""
        if sorted(state) != sorted(_NAMES):
            raise InvalidArgumentError(f"the state must hold {', '.join(_NAMES)}, not {', '.join(map(str, state))}")
        past = np.asarray(state["pastLen"]).reshape(-1)
        if past.size != 1 or past[0] != np.trunc(past[0]):
            raise InvalidArgumentError(f"pastLen must hold one whole number, not {state['pastLen']!r}")
        shape = list(self._native.shape)
        parts, rows = [], None
        for name in _NAMES[:2]:
            array = np.asarray(state[name])
            if array.dtype not in _DTYPES.values():
                raise TypeError(f"{name} must be float16 or float32, not {array.dtype}")
            wanted = [*shape[:3], array.shape[3] if array.ndim == 5 and rows is None else rows, shape[4]]
            if list(array.shape) != wanted:
                text = ", ".join("rows" if n is None else str(n) for n in [*shape[:3], rows, shape[4]])
                raise InvalidArgumentError(f"{name} must be [{text}], not {list(array.shape)}")
            rows = array.shape[3]
            kind = "f16" if array.dtype == np.float16 else "f32"
            parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8), kind]
        self._native.set_state(*parts, rows, whole(int(past[0]), "pastLen"), token_ids(tokens), getattr(state, "model", ""))

    def reset(self) -> None:
        """A new sequence."""
        self._native.reset()

    def __repr__(self) -> str:
        return f"<kvtide.StatefulModel, {self.past_length} positions read>"
