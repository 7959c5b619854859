"""Array transitions on PyTorch tensors. Skipped where PyTorch is not installed."""

import subprocess
import sys
from unittest import mock

import contract
import numpy as np
import pytest

from kvtide import _arrays
from kvtide.state_transition import compact_kv_state, transition_coreml_state, transition_kv_state

torch = pytest.importorskip("torch")

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.bool]


def numpy_of(tensor):
    return tensor.to(torch.float64).numpy()


def bits_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("native_from", [0, 1 << 40])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_follow_the_contract(dtype, native_from):
    random = np.random.default_rng(5)
    with mock.patch.object(_arrays, "_NATIVE_FROM", native_from):
        for _ in range(150):
            shape = random.integers(1, 5, 4)
            state = torch.from_numpy(random.integers(0, 100, shape * 2)).to(dtype)
            state = state[::2, : shape[1], ::2, : shape[3]] if random.random() < 0.5 else state.contiguous()
            held = state.shape[2]
            position = int(random.integers(-1, held + 2))
            length = held + int(random.integers(-1, 4))
            pad = int(random.integers(0, 2))
            for expected, call, args in (
                (contract.grown(numpy_of(state), length, position, pad, None), transition_kv_state, (pad,)),
                (contract.shrunk(numpy_of(state), length, position, None), compact_kv_state, ()),
            ):
                if isinstance(expected, str):
                    with pytest.raises(ValueError, match=expected):
                        call(state, length, position, *args)
                    continue
                result = call(state, length, position, *args)
                if call is transition_kv_state and length == held == position:
                    assert result is state
                    continue
                assert result.dtype == dtype and result.is_contiguous()
                np.testing.assert_array_equal(numpy_of(result), expected)
                assert bits_of(result[:, :, :position]) == bits_of(state[:, :, :position])


def test_nothing_to_do_gives_the_same_tensor():
    state = torch.ones(1, 2, 3, 4)
    assert transition_kv_state(state, 3) is state
    assert transition_kv_state(state, 3, 3, dtype=torch.float16) is state
    assert compact_kv_state(state, 3, 3) is not state


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("length", [400, 9000])
def test_a_stale_tail_never_reaches_the_result(dtype, length):
    state = torch.ones(4, 2, 400, 64, dtype=dtype)
    state[:, :, 300:] = torch.nan
    for result in (transition_kv_state(state, length, 300), compact_kv_state(state, 350, 300)):
        assert (result[:, :, :300] == 1).all() and (result[:, :, 300:] == 0).all()


def test_another_dtype_is_made_on_the_way():
    state = torch.full((1, 1, 3, 2), 1.5)
    result = transition_kv_state(state, 5, 2, 0.25, torch.bfloat16)
    assert result.dtype == torch.bfloat16
    assert result[0, 0, :, 0].tolist() == [1.5, 1.5, 0.25, 0.25, 0.25]
    assert compact_kv_state(state, 2, 2, torch.float16).dtype == torch.float16


def test_a_tensor_stays_on_its_device():
    state = torch.empty(1, 1, 3, 2, device="meta")
    result = transition_kv_state(state, 5, 2)
    assert result.device.type == "meta" and result.shape == (1, 1, 5, 2)


def test_the_result_is_no_part_of_a_gradient():
    state = torch.ones(1, 1, 3, 2, requires_grad=True)
    for result in (transition_kv_state(state, 5, 2), compact_kv_state(state, 3, 3)):
        assert not result.requires_grad
        result += 1
    assert (state == 1).all()


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((torch.zeros(1, 1, 2, 2), 4, 2, 0, np.float32), TypeError),
        ((torch.zeros(1, 1, 2, 2), 4, 2, 0, "float32"), TypeError),
        ((torch.zeros(1, 1, 2, 2), 4, 2, "zero"), TypeError),
        ((torch.zeros(1, 1, 2, 2).to_sparse(), 4, 2), TypeError),
        ((torch.zeros(1, 1, 2, 2, dtype=torch.complex64), 4, 2, 0, torch.float32), TypeError),
        ((np.zeros((1, 1, 2, 2)), 4, 2, 0, torch.float32), TypeError),
        ((torch.zeros(1, 1, 2, 2, dtype=torch.int8), 4, 2, 0.5), ValueError),
        ((torch.zeros(1, 1, 2, 2, dtype=torch.float16), 4, 2, 1e6), ValueError),
        ((torch.zeros(1, 2, 2), 4, 2), ValueError),
    ],
)
def test_what_makes_no_sense_is_refused(args, error):
    with pytest.raises(error):
        transition_kv_state(*args)


def test_shapes_in_messages_look_like_those_of_numpy():
    with pytest.raises(ValueError, match=r"\(1, 2, 3\)$"):
        transition_kv_state(torch.zeros(1, 2, 3), 4)


def test_objects_that_hold_tensors_are_moved():
    class Holder:
        def __init__(self, value):
            self.value = value

        def read_state(self, *, name):
            return self.value

        def write_state(self, *, name, value):
            self.value = value

    source, target = Holder(torch.ones(1, 1, 3, 2)), Holder(torch.zeros(1, 1, 5, 2, dtype=torch.bfloat16))
    transition_coreml_state(source, target, "kv", 2)
    assert target.value.dtype == torch.bfloat16
    assert target.value[0, 0, :, 0].tolist() == [1, 1, 0, 0, 0]


def test_pytorch_is_imported_by_nobody_else():
    code = "import sys, kvtide.state_transition; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
