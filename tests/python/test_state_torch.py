"""The rows of a state as PyTorch tensors. Skipped where PyTorch is not installed."""

import numpy as np
import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension

torch = pytest.importorskip("torch")


def filled():
    state = kvtide.State(layers=2, kv_heads=2, head_dim=32, capacity=128)
    rows = torch.arange(4 * 2 * 128 * 32, dtype=torch.float32).reshape(4, 2, 128, 32).remainder(2048).half()
    state.write("kv_cache", rows, position=100)
    return state, rows


def test_a_tensor_looks_into_the_memory_and_pins_it():
    state, rows = filled()
    keys = torch.from_dlpack(state.keys(1))
    assert keys.data_ptr() == state.keys(1).ctypes.data and torch.equal(keys, rows[1, :, :100])
    with pytest.raises(BufferError):
        state.truncate(99)
    part = keys[0, 1]
    del keys
    assert state.views == 1
    del part
    state.truncate(99)


def test_a_tensor_on_no_cpu_or_of_another_type_is_refused():
    state, rows = filled()
    for wrong in (rows.to("meta"), rows.bfloat16(), rows.to_sparse()):
        with pytest.raises(TypeError):
            state.write("kv_cache", wrong)
    assert state.read("kv_cache")[:, :, :100].tobytes() == rows[:, :, :100].contiguous().numpy().tobytes()
    assert isinstance(state.read("kv_cache"), np.ndarray)
