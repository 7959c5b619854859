"""A plain NumPy interpretation of an ML program, as one would write it: an operation at a time, computed in f32, rounded to the declared type.

For tools/measure_coreml.py, which times it, and as a second opinion. Knows the operations of the decoders in coreml_decoders.py whose
packages take ids and a mask (Gpt2, Llama).
"""

from __future__ import annotations

import math
import pathlib

import coremltools as ct
import numpy as np

DTYPES = {1: np.bool_, 10: np.float16, 11: np.float32, 21: np.int8, 22: np.int16, 23: np.int32, 31: np.uint8, 32: np.uint16}
NAMES = {"fp16": np.float16, "fp32": np.float32, "int32": np.int32, "int16": np.int16, "uint16": np.uint16, "bool": np.bool_}
FIELDS = ("floats", "ints", "bools", "strings", "longInts", "doubles")


def softmax(x, axis=-1):
    y = np.exp(x - x.max(axis, keepdims=True))
    return y / y.sum(axis, keepdims=True)


def parts_of(x, begin, end, stride=None, begin_mask=None, end_mask=None, squeeze_mask=None):
    index = []
    for i in range(x.ndim):
        if squeeze_mask is not None and squeeze_mask[i]:
            index.append(int(begin[i]))
            continue
        first = None if begin_mask is not None and begin_mask[i] else int(begin[i])
        last = None if end_mask is not None and end_mask[i] else int(end[i])
        index.append(slice(first, last, None if stride is None else int(stride[i])))
    return tuple(index)


def slice_update(x, update, **where):
    out = x.copy()
    at = parts_of(x, **where)
    out[at] = update.reshape(out[at].shape)
    return out


def layer_norm(x, axes, gamma=None, beta=None, epsilon=1e-5):
    axes = tuple(axes)
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)
    return y * (1 if gamma is None else gamma) + (0 if beta is None else beta)


def attention(query, key, value, attn_mask=0.0):
    return softmax(query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1]) + attn_mask) @ value


def reshaped(x, shape):
    offset = x.ndim - len(shape)
    return x.reshape([x.shape[offset + i] if n == 0 else int(n) for i, n in enumerate(shape)])


def band_part(x, lower=-1, upper=-1):
    m, n = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])[None, :]
    return np.where(((lower < 0) | (m - n <= lower)) & ((upper < 0) | (n - m <= upper)), x, 0)


def division(x, y):
    return x / y if x.dtype.kind == "f" else (x / y).astype(np.int32)


def matmul(x, y, transpose_x=False, transpose_y=False):
    return (np.swapaxes(x, -1, -2) if transpose_x else x) @ (np.swapaxes(y, -1, -2) if transpose_y else y)


def split(x, axis, num_splits=None, split_sizes=None):
    return np.split(x, num_splits if split_sizes is None else np.cumsum(split_sizes)[:-1], axis)


def along(reduce):
    return lambda x, axes=None, keep_dims=False: reduce(x, axis=None if axes is None else tuple(axes), keepdims=bool(keep_dims))


OPERATIONS = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "real_div": division,
    "floor_div": lambda x, y: x // y, "pow": lambda x, y: x**y, "maximum": lambda x, y: np.maximum(x, y), "minimum": lambda x, y: np.minimum(x, y),
    "equal": lambda x, y: x == y, "greater": lambda x, y: x > y, "greater_equal": lambda x, y: x >= y, "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y, "logical_and": lambda x, y: x & y, "logical_or": lambda x, y: x | y, "logical_not": lambda x: ~x,
    "select": lambda cond, a, b: np.where(cond, a, b), "cast": lambda x, dtype: x.astype(NAMES[dtype]),
    "cos": lambda x: np.cos(x), "sin": lambda x: np.sin(x), "tanh": lambda x: np.tanh(x), "identity": lambda x: x,
    "rsqrt": lambda x, epsilon=1e-12: 1 / np.sqrt(x + epsilon), "silu": lambda x: x / (1 + np.exp(-x)), "softmax": softmax,
    "gelu": lambda x, mode="EXACT": 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
    "linear": lambda x, weight, bias=0.0: x @ weight.T + bias, "matmul": matmul, "layer_norm": layer_norm,
    "scaled_dot_product_attention": attention, "reduce_mean": along(np.mean), "reduce_sum": along(np.sum),
    "gather": lambda x, indices, axis=0, batch_dims=0, validate_indices=False: np.take(x, indices, axis),
    "concat": lambda values, axis, interleave=False: np.concatenate([np.atleast_1d(v) for v in values], axis),
    "stack": lambda values, axis: np.stack(values, axis), "tile": lambda x, reps: np.tile(x, reps), "transpose": lambda x, perm: x.transpose(perm),
    "expand_dims": lambda x, axes: np.expand_dims(x, tuple(axes)), "split": split, "reshape": reshaped, "band_part": band_part,
    "squeeze": lambda x, axes=None: np.squeeze(x, None if axes is None else tuple(axes)), "shape": lambda x: np.array(x.shape, np.int32),
    "fill": lambda shape, value=0.0: np.full(shape, value), "range_1d": lambda start, end, step: np.arange(start, end, step),
    "slice_by_index": lambda x, **where: x[parts_of(x, **where)], "slice_update": slice_update,
}  # fmt: skip


class NumpyModel:
    """A package with one function. States are a dict of arrays."""

    def __init__(self, package: pathlib.Path) -> None:
        spec = ct.utils.load_spec(str(package))
        blob = next((package / "Data").rglob("weight.bin"), None)
        self.blob = np.fromfile(blob, np.uint8) if blob else None
        function = spec.mlProgram.functions["main"]
        block = function.block_specializations[function.opset]
        self.inputs = {i.name: i.type for i in function.inputs}
        self.outputs, self.constants, self.steps = list(block.outputs), {}, []
        for operation in block.operations:
            if operation.type == "const":
                self.constants[operation.outputs[0].name] = self.value(operation.attributes["val"])
                continue
            if operation.type not in OPERATIONS and operation.type not in ("read_state", "write_state"):
                raise NotImplementedError(operation.type)
            arguments = {name: [b.name if b.name else self.value(b.value) for b in a.arguments] for name, a in operation.inputs.items()}
            outputs = [(o.name, DTYPES[o.type.tensorType.dataType]) for o in operation.outputs]
            self.steps.append((operation.type, arguments, outputs))

    def value(self, value):
        tensor = value.type.tensorType
        shape = [d.constant.size for d in tensor.dimensions]
        if value.HasField("blobFileValue"):
            at = value.blobFileValue.offset
            size, first = self.blob[at + 8 : at + 24].view(np.uint64)
            return self.blob[int(first) : int(first + size)].view(DTYPES[tensor.dataType]).reshape(shape)
        held = value.immediateValue.tensor
        if held.HasField("bytes"):
            return np.frombuffer(held.bytes.values, DTYPES[tensor.dataType]).reshape(shape)
        values = next(list(getattr(held, field).values) for field in FIELDS if held.HasField(field))
        if held.HasField("strings"):
            return values[0]
        return np.array(values, DTYPES[tensor.dataType]).reshape(shape)

    def make_state(self) -> dict[str, np.ndarray]:
        return {name: np.zeros([d.constant.size for d in kind.stateType.wrappedType.tensorType.dimensions], np.float16)
                for name, kind in self.inputs.items() if kind.HasField("stateType")}  # fmt: skip

    def predict(self, inputs: dict[str, np.ndarray], states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        known = self.constants | inputs
        for kind, arguments, outputs in self.steps:
            if kind == "write_state":
                states[arguments["input"][0]] = known[arguments["data"][0]]
                continue
            if kind == "read_state":
                known[outputs[0][0]] = states[arguments["input"][0]]
                continue
            given = {}
            for name, bound in arguments.items():
                values = [known[b] if isinstance(b, str) and b in known else b for b in bound]
                if kind != "slice_update":  # which moves, and computes nothing
                    values = [v.astype(np.float32) if isinstance(v, np.ndarray) and v.dtype == np.float16 else v for v in values]
                given[name] = values if name == "values" else values[0]
            result = OPERATIONS[kind](**given)
            for (name, dtype), each in zip(outputs, result if isinstance(result, list) else [result]):
                known[name] = np.asarray(each).astype(dtype, copy=False)
        return {name: known[name] for name in self.outputs}
