"""What state_transition needs of an array library: one class for NumPy, one for PyTorch, with the same methods.

PyTorch is never imported here: an object can only be a tensor when its caller has imported it already.

Invariant of every method: the result is a new array, C-contiguous, that shares no memory with its source; no value
of the source outside the positions in use is ever read into arithmetic, so NaN in a stale tail stays there.
"""

from __future__ import annotations

import math
import numbers
import sys
from typing import Any

import numpy as np

_native: Any
try:
    from kvtide import _native
except ImportError:  # not built: everything below is right without it, only slower
    _native = None

# Below this the library's own copy is as fast as any.
_NATIVE_FROM = 1 << 20  # bytes
# Larger blocks come from the operating system page by page, as zeros, so there is no need to write these.
_FRESH_FROM = (32 << 20) + 1  # bytes


def library_of(array: Any, what: str = "source_state") -> Any:
    """NumpyArrays or TorchTensors. TypeError for anything else."""
    torch = sys.modules.get("torch")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array; a state has a value everywhere: use .filled(0)")
    if isinstance(array, np.ndarray):
        _check_numeric(array.dtype, what)
        return NumpyArrays
    if torch is not None and isinstance(array, torch.Tensor):
        if array.layout != torch.strided or array.is_quantized:
            raise TypeError(f"{what} must be a dense tensor, not {array.layout} {array.dtype}")
        return TorchTensors
    raise TypeError(f"{what} must be a NumPy array or a PyTorch tensor, not {type(array).__name__}")


class NumpyArrays:
    @staticmethod
    def dtype(wanted: Any, source: np.ndarray) -> np.dtype:
        if wanted is None:
            return source.dtype
        try:
            dtype: np.dtype = np.dtype(wanted)
        except TypeError:
            raise TypeError(f"dtype must be a NumPy dtype for a NumPy array, not {wanted!r}") from None
        _check_numeric(dtype, "dtype")
        if source.dtype.kind == "c" and dtype.kind != "c":
            raise TypeError(f"dtype {dtype} cannot hold the complex numbers of the source")
        return dtype

    @staticmethod
    def copy(source: np.ndarray, dtype: np.dtype) -> np.ndarray:
        return np.array(source, dtype=dtype, order="C", copy=True, subok=False)

    @staticmethod
    def resized(source: np.ndarray, length: int, position: int, pad_value: Any, dtype: np.dtype) -> np.ndarray:
        pad = _numpy_padding(pad_value, dtype)
        zero = not any(pad.tobytes())
        shape = (*source.shape[:2], length, source.shape[3])
        size = math.prod(shape) * dtype.itemsize
        if _native is not None and size >= _NATIVE_FROM and dtype == source.dtype and source.flags.c_contiguous:
            fresh = size >= _FRESH_FROM
            padded = fresh and zero
            result = (np.zeros if padded else np.empty)(shape, dtype)
            _native.move_dense(
                _bytes_of(source), source.shape, _bytes_of(result), shape, position, pad.tobytes(), padded, fresh
            )
            return result
        if zero:
            result = np.zeros(shape, dtype)
        else:
            result = np.empty(shape, dtype)
            result[:, :, position:] = pad
        np.copyto(result[:, :, :position], source[:, :, :position], casting="unsafe")
        return result


class TorchTensors:
    @staticmethod
    def dtype(wanted: Any, source: Any) -> Any:
        torch = sys.modules["torch"]
        if wanted is None:
            return source.dtype
        if not isinstance(wanted, torch.dtype):
            raise TypeError(f"dtype must be a torch.dtype for a PyTorch tensor, not {wanted!r}")
        if source.is_complex() and not wanted.is_complex:
            raise TypeError(f"dtype {wanted} cannot hold the complex numbers of the source")
        return wanted

    @staticmethod
    def copy(source: Any, dtype: Any) -> Any:
        torch = sys.modules["torch"]
        return source.detach().to(dtype=dtype, copy=True, memory_format=torch.contiguous_format)

    @staticmethod
    def resized(source: Any, length: int, position: int, pad_value: Any, dtype: Any) -> Any:
        torch = sys.modules["torch"]
        source = source.detach()
        pad = _torch_padding(pad_value, dtype)
        shape = (*source.shape[:2], length, source.shape[3])
        result = torch.empty(shape, dtype=dtype, device=source.device)
        size = result.numel() * result.element_size()
        if (
            _native is not None
            and size >= _NATIVE_FROM
            and dtype == source.dtype
            and source.device.type == "cpu"
            and source.is_contiguous()
            and not source.is_conj()
            and not source.is_neg()
        ):
            _native.move_dense(
                _tensor_bytes(source), tuple(source.shape), _tensor_bytes(result), shape, position,
                _tensor_bytes(pad).tobytes(), False, size >= _FRESH_FROM,
            )  # fmt: skip
            return result
        result[:, :, position:] = pad.to(source.device)
        result[:, :, :position] = source[:, :, :position]
        return result


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.view(np.ndarray).reshape(-1).view(np.uint8)


def _tensor_bytes(tensor: Any) -> np.ndarray:
    flat: np.ndarray = tensor.reshape(-1).view(sys.modules["torch"].uint8).numpy()
    return flat


def _check_numeric(dtype: np.dtype, what: str) -> None:
    # Types that other packages add to NumPy (bfloat16 for one) are of kind V, like structures, which are not numbers.
    added = dtype.kind == "V" and dtype.names is None and dtype.type is not np.void
    if dtype.kind not in "biufc" and not added:
        raise TypeError(f"{what} must be numeric, not {dtype}")


def _check_number(pad_value: Any, complex_numbers: bool) -> None:
    kind = numbers.Complex if complex_numbers else numbers.Real
    if not isinstance(pad_value, (kind, np.bool_)):
        raise TypeError(f"pad_value must be a {'' if complex_numbers else 'real '}number, not {pad_value!r}")


def _does_not_fit(pad_value: Any, dtype: Any) -> ValueError:
    return ValueError(f"pad_value {pad_value} does not fit into {dtype}")


def _check_integer(pad_value: Any, dtype: Any, lowest: int, highest: int) -> None:
    if not math.isfinite(pad_value) or int(pad_value) != pad_value or not lowest <= pad_value <= highest:
        raise _does_not_fit(pad_value, dtype)


def _numpy_padding(pad_value: Any, dtype: np.dtype) -> np.ndarray:
    """One element as an array without axes. ValueError when the type cannot hold it."""
    _check_number(pad_value, dtype.kind == "c")
    if dtype.kind == "b":
        _check_integer(pad_value, dtype, 0, 1)
    elif dtype.kind in "iu":
        _check_integer(pad_value, dtype, np.iinfo(dtype).min, np.iinfo(dtype).max)
        return np.array(int(pad_value), dtype)
    with np.errstate(all="ignore"):
        try:
            pad = np.array(pad_value).astype(dtype)
        except (OverflowError, TypeError):  # an integer beyond every float
            raise _does_not_fit(pad_value, dtype) from None
    if dtype.kind == "f" and math.isfinite(pad_value) and not np.isfinite(pad):
        raise _does_not_fit(pad_value, dtype)
    return pad


def _torch_padding(pad_value: Any, dtype: Any) -> Any:
    torch = sys.modules["torch"]
    _check_number(pad_value, dtype.is_complex)
    if dtype == torch.bool:
        _check_integer(pad_value, dtype, 0, 1)
    elif not dtype.is_floating_point and not dtype.is_complex:
        _check_integer(pad_value, dtype, torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        pad_value = int(pad_value)
    else:
        pad_value = complex(pad_value) if dtype.is_complex else float(pad_value)
    pad = torch.full((1,), pad_value, dtype=torch.float64 if dtype.is_floating_point else dtype).to(dtype)
    if dtype.is_floating_point and math.isfinite(pad_value) and not math.isfinite(pad.to(torch.float64).item()):
        raise _does_not_fit(pad_value, dtype)
    return pad
