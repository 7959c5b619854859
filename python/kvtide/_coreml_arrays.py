"""Values that callers give for inputs and states, as the native module takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvtide._coreml_features import Feature
from kvtide.errors import InvalidArgumentError

Packed = tuple[str, str, tuple[int, ...], np.ndarray]  # name, dtype, shape, bytes


def as_numpy(value: Any, name: str) -> np.ndarray:
    """An array of numbers: NumPy's own, lists, or a tensor of another library such as PyTorch."""
    if hasattr(value, "detach"):  # a tensor of PyTorch, of which NumPy takes none that records gradients
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of numbers, not of {array.dtype}")
    return array


def _whole(array: np.ndarray, name: str, dtype: np.dtype[Any]) -> np.ndarray:
    """int32, after a look at every number: a position that is cut off would be another position."""
    limits = np.iinfo(np.int32 if dtype.kind == "b" else dtype)
    if array.size and array.dtype.kind != "b":
        if array.dtype.kind == "f" and not np.array_equal(array, np.trunc(array)):
            raise InvalidArgumentError(f"{name} is of {dtype} and takes whole numbers only")
        for number in (array.min(), array.max()):
            if not limits.min <= number <= limits.max:
                raise InvalidArgumentError(f"{name} is of {dtype}, which cannot hold {number}")
    return array.astype(np.int32)


def packed(value: Any, feature: Feature, what: str) -> Packed:
    """The value in a type that the native module converts to the feature's. A number stands for an array of one."""
    label = f"{what} {feature.name!r}"
    array = as_numpy(value, label)
    if feature.dtype.kind != "f":
        if not (feature.dtype.kind == "b" and array.dtype.kind == "b"):
            array = _whole(array, label, feature.dtype)
    elif array.dtype not in (np.float16, np.float32):
        array = array.astype(np.float32)
    if array.ndim == 0 and feature.shape == (1,):
        array = array.reshape(1)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return feature.name, array.dtype.name, array.shape, flat
