"""A model split into files that run on their own: what `kvtide shard export` writes.

    folder = kvtide.ShardFolder("shards")
    attention = folder.open("attention.0")
    state = attention.make_state()                    # one per shard and sequence
    hidden = attention.predict({"x": x, "rope_cos": cos, "rope_sin": sin,
                                "attention_mask": seen, "write_mask": written}, state)
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, NamedTuple

import numpy as np

from kvtide import _native
from kvtide._arguments import file_path, size_text, string, strings, token_ids, whole


class ShardInfo(NamedTuple):
    """What the manifest says of a shard. ``layer`` of attention, mlp and moe shards, ``rope`` (which rope table its
    columns want) and ``window`` (newest slots that a column may see) of attention shards, ``vocabulary`` of heads: the ids whose
    logits they give."""

    name: str
    kind: str
    file: str
    nbytes: int
    layer: int | None
    rope: int | None
    window: int | None
    vocabulary: range | None


def _info(native: Any) -> ShardInfo:
    kind = native.kind
    return ShardInfo(
        native.name,
        kind,
        native.file,
        native.bytes,
        native.layer if kind in ("attention", "mlp", "moe") else None,
        native.rope if kind == "attention" else None,
        native.window,
        range(native.vocab_first, native.vocab_last) if kind == "head" else None,
    )


def _flat(inputs: Mapping[str, Any], name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """A contiguous float32 array as one axis: a view where the caller's array already is one."""
    if name not in inputs:
        raise TypeError(f"the inputs lack {name!r}")
    array = np.asarray(inputs[name])
    if array.dtype.kind != "f":
        raise TypeError(f"{name} must hold floats, not {array.dtype}")
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape))
    if not fits:
        wanted = ", ".join("T" if extent is None else str(extent) for extent in shape)
        raise ValueError(f"{name} must have shape [{wanted}], not {list(array.shape)}")
    return np.ascontiguousarray(array, np.float32).reshape(-1)


def _only(inputs: Mapping[str, Any], names: Iterable[str], kind: str) -> None:
    unknown = sorted(set(inputs) - set(names))
    if unknown:
        raise TypeError(f"a shard of the kind {kind} takes {', '.join(names)}, not {', '.join(unknown)}")


class ShardState:
    """The keys and values of one shard and one sequence; made by ``Shard.make_state``."""

    def __init__(self, native: _native.ShardState) -> None:
        self._native = native

    @property
    def shard(self) -> str:
        """Name of the shard that it belongs to."""
        return self._native.shard

    @property
    def slots(self) -> int:
        return self._native.slots

    @property
    def position(self) -> int:
        """Slots 0 to ``position`` are in use; the next column is written to slot ``position``."""
        return self._native.position

    @property
    def nbytes(self) -> int:
        return self._native.nbytes

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """The arrays where they lie, by name; writable, and nothing is copied."""
        tensor: Any = self._native.tensor
        return {name: tensor(i) for i, name in enumerate(self._native.tensor_names)}

    @property
    def k_state(self) -> np.ndarray:
        """float16 [1, kv_heads, slots, head_dim], where it lies."""
        return self.tensors["k_state"]

    @property
    def v_state(self) -> np.ndarray:
        """float16 [1, kv_heads, slots, head_dim], where it lies."""
        return self.tensors["v_state"]

    def truncate(self, n: int) -> None:
        """Forgets the positions from ``n`` on: how a rejected draft is taken back. Where queries and keys are convolved
        (``conv_state`` is among the tensors) it goes back by ``t_max`` positions at most, or to 0."""
        self._native.truncate(whole(n, "n"))

    def __repr__(self) -> str:
        return (
            f"<kvtide.ShardState of {self.shard}: {self.position} of {self.slots} slots in use, "
            f"{size_text(self.nbytes)}>"
        )


class Shard:
    """One piece of a split model. The shards of one folder serve one caller at a time."""

    def __init__(self, native: Any, width: int, slots: int, rope_half: int, router_width: int) -> None:
        self._native = native
        self._width, self._slots, self._rope_half, self._router_width = width, slots, rope_half, router_width
        self.info = _info(native.info)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], name: str, *, threads: int | None = None) -> Shard:
        """A shard of a folder by its name in the manifest; ``ShardFolder`` opens several with one set of threads."""
        return ShardFolder(folder, threads=threads).open(name)

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def kind(self) -> str:
        """'embedding', 'attention', 'mlp', 'moe' or 'head'."""
        return self.info.kind

    @property
    def nbytes(self) -> int:
        """Bytes of the weights in memory."""
        size: int = self._native.nbytes
        return size

    def make_state(self) -> ShardState:
        """An empty state, of an attention shard: one for every sequence."""
        return ShardState(self._native.make_state())

    def predict(
        self,
        inputs: Mapping[str, Any],
        state: ShardState | None = None,
        *,
        hides_past: bool = False,
        other_positions: bool = False,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """float32 [1, channels, T, 1]; T is 1 to the folder's ``t_max``.

        An attention shard takes ``x`` [1, D, T, 1], ``rope_cos`` and ``rope_sin`` [T, rope_half], ``attention_mask``
        [1, 1, T, S] and ``write_mask`` [1, 1, S, T], and its state; an mlp or head shard ``x``; the embedding ``ids`` and
        ``first``, the position of the first. A moe shard takes ``x`` and ``router`` [1, router_width, T, 1], what the moe
        shard of the layer before gave (layer 0 reads none of it, and it may be left out), and gives the pair (hidden,
        router). float32 arrays in C order are read where they lie. Two mistakes that only later tokens show are refused
        unless they are meant: a mask that shows a column nothing but its own slot (``hides_past``; layers with a window may),
        and rope rows of another position than the slot's (``other_positions``). Raises
        InvalidArgumentError for masks that break the contract (the message names the slot), ContextFullError, NumericError;
        the state is then as it was.
        """
        kind = self.kind
        if kind != "attention" and state is not None:
            raise TypeError(f"a shard of the kind {kind} takes no state")
        if kind == "embedding":
            _only(inputs, ("ids", "first"), kind)
            if "ids" not in inputs:
                raise TypeError("the inputs lack 'ids'")
            ids = token_ids(inputs["ids"])
            out: np.ndarray = self._native.predict_ids(ids, whole(inputs.get("first", 0), "first"))
            return out.reshape(1, self._width, ids.size, 1)
        x = _flat(inputs, "x", (1, self._width, None, 1))
        columns = x.size // self._width
        if kind == "moe":
            _only(inputs, ("x", "router"), kind)
            shape = (1, self._router_width, columns, 1)
            if self.info.layer == 0:
                inputs = {"router": np.zeros(shape, np.float32), **inputs}
            pair: tuple[np.ndarray, np.ndarray] = self._native.predict_moe(x, _flat(inputs, "router", shape))
            return pair[0].reshape(1, self._width, columns, 1), pair[1].reshape(shape)
        if kind != "attention":
            _only(inputs, ("x",), kind)
            out = self._native.predict_hidden(x)
            return out.reshape(1, -1, columns, 1)
        names = ("x", "rope_cos", "rope_sin", "attention_mask", "write_mask")
        _only(inputs, names, kind)
        if not isinstance(state, ShardState):
            raise TypeError("an attention shard needs its state: shard.make_state()")
        rope = (columns, self._rope_half)
        empty = np.empty(rope, np.float32) if self._rope_half == 0 else None
        cosine, sine = (
            _flat(inputs if empty is None else {name: empty, **inputs}, name, rope) for name in ("rope_cos", "rope_sin")
        )
        seen = _flat(inputs, "attention_mask", (1, 1, columns, self._slots))
        written = _flat(inputs, "write_mask", (1, 1, self._slots, columns))
        out = self._native.predict_attention(x, cosine, sine, seen, written, state._native, bool(hides_past), bool(other_positions))
        return out.reshape(1, self._width, columns, 1)

    def __repr__(self) -> str:
        return f"<kvtide.Shard {self.name!r}: {self.kind}, {size_text(self.nbytes)}>"


class ShardFolder:
    """A folder that ``kvtide shard export`` or ``ShardFolder.export`` wrote; opening it checks its manifest."""

    def __init__(self, path: str | os.PathLike[str], *, threads: int | None = None) -> None:
        """``threads``: None: as many as the machine has. Raises NotFoundError, BadFormatError, UnsupportedError."""
        self.path = os.fspath(path)
        self._native = _native.ShardFolder(
            file_path(path), 0 if threads is None else whole(threads, "threads", 1, 256)
        )
        self.shards = tuple(_info(info) for info in self._native.shards)

    @staticmethod
    def export(
        model: str | os.PathLike[str],
        folder: str | os.PathLike[str],
        *,
        type: str = "f16",
        scales: str = "channel",
        min_elements: int = 2048,
        keep_f16: Iterable[str] = (),
        slots: int | None = None,
        head_shards: int = 1,
        threads: int | None = None,
    ) -> None:
        """Splits a model (a GGUF file or a Hugging Face folder) into a new folder; see ``kvtide shard export --help``."""
        _native.export_shards(
            file_path(model),
            file_path(folder),
            string(type, "type"),
            string(scales, "scales"),
            whole(min_elements, "min_elements"),
            strings(list(keep_f16) if not isinstance(keep_f16, str) else keep_f16, "keep_f16"),
            None if slots is None else whole(slots, "slots", 1, 2**20),
            whole(head_shards, "head_shards", 1, 2**20),
            0 if threads is None else whole(threads, "threads", 1, 256),
        )

    @property
    def width(self) -> int:
        """D: channels of x and hidden."""
        return self._native.width

    @property
    def vocabulary(self) -> int:
        return self._native.vocabulary

    @property
    def layers(self) -> int:
        return self._native.layers

    @property
    def slots(self) -> int:
        """S: positions that a state holds."""
        return self._native.slots

    @property
    def state_nbytes(self) -> int:
        """Bytes of the states of one sequence, those of all attention shards: taken when they are made."""
        size: int = self._native.state_nbytes
        return size

    @property
    def t_max(self) -> int:
        """Most columns of a call."""
        return self._native.t_max

    @property
    def rope_half(self) -> int:
        """Columns of the rope tables; 0: nothing is rotated."""
        return self._native.rope_half

    @property
    def router_width(self) -> int:
        """Channels that moe shards hand on to each other; 0: there are none."""
        return self._native.router_width

    def open(self, name: str) -> Shard:
        """Loads a shard; its file must have the checksum that the manifest says."""
        return Shard(self._native.open(string(name, "name")), self.width, self.slots, self.rope_half, self.router_width)

    def rope_rows(self, rope: int, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(rope_cos, rope_sin), float32 [count, rope_half] each, of the positions from ``first`` on."""
        count = whole(count, "count", 0, self.slots)
        tables: Any = self._native.rope_rows(whole(rope, "rope", 0, 2**20), whole(first, "first"), count)
        cosine, sine = tables
        return cosine.reshape(count, self.rope_half), sine.reshape(count, self.rope_half)

    def __repr__(self) -> str:
        return (
            f"<kvtide.ShardFolder: {len(self.shards)} shards, {self.layers} layers of width {self.width}, "
            f"{self.slots} slots>"
        )
