"""Random states, lengths and positions, right and wrong ones, against the contract of contract.py."""

import math
import random
from unittest import mock

import contract
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvtide import _arrays
from kvtide.state_transition import compact_kv_state, get_transition_info, transition_kv_state, validate_state_shapes

CASES = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))

DTYPES = [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int32, np.complex64, np.dtype(">f4"), np.bool_]
# A case comes from a seed: drawing a dozen values one by one would take most of the time.
seeds = st.integers(0, 2**64 - 1)


class Dice(random.Random):
    def take(self, choices):
        return self.choice(list(choices))

    def seldom(self):
        return self.random() < 0.1


def a_state(dice):
    dtype = np.dtype(dice.take(DTYPES))
    axes = dice.take([2, 3, 5]) if dice.seldom() else 4
    shape = [0 if dice.random() < 0.02 else dice.randint(1, 5) for _ in range(axes)]
    values = np.frombuffer(dice.randbytes(math.prod(shape) * 2**axes), np.int8).reshape([2 * n for n in shape])
    state = values.astype(dtype)
    layout = dice.take(["contiguous", "every other", "backwards", "fortran", "read only"])
    if layout == "every other":
        state = state[tuple(slice(None, None, 2) for _ in shape)]
    else:
        state = state[tuple(slice(0, n) for n in shape)]
    if layout == "backwards" and axes > 2:
        state = state[:, :, ::-1]
    elif layout == "fortran":
        state = np.asfortranarray(state)
    elif layout in ("contiguous", "read only"):
        state = np.ascontiguousarray(state)
    return state, dtype, layout


def a_position(dice, length):
    """Mostly from 0 to length."""
    return dice.take([-1, -7, length + 1, length + 5]) if dice.seldom() else dice.randint(0, length)


def poison(state, position):
    """NaN and infinity where nothing is in use."""
    if state.ndim == 4 and state.dtype.kind in "fc" and position is not None and position >= 0:
        state[:, :, position:] = np.nan
        state[:, :, position + 1 :] = np.inf


def same(result, expected):
    assert type(result) is np.ndarray
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.flags.c_contiguous and result.flags.writeable
    assert result.tobytes() == np.ascontiguousarray(expected).tobytes()


@settings(CASES, max_examples=12_000)
@given(seeds)
def test_growing_is_what_the_contract_says(seed):
    dice = Dice(seed)
    state, dtype, layout = a_state(dice)
    held = state.shape[2] if state.ndim > 2 else 3
    length = held + (dice.take([-1, -held - 1]) if dice.seldom() else dice.take([0, 0, 1, 2, 7]))
    position = dice.take([None, held]) if dice.seldom() else a_position(dice, held)
    pad = dice.take([0, 0.0, 1, 1.0] if dtype == np.bool_ else [0, 0.0, -0.0, 3, 7.0, np.int8(5)])
    pad = abs(pad) if dtype.kind == "u" else pad
    wanted = dice.take([None, None, np.float32, np.float64]) if dtype.kind != "c" else None
    poison(state, position)
    state.flags.writeable = layout != "read only"
    before = state.tobytes()
    expected = contract.grown(state, length, position, pad, wanted)
    with mock.patch.object(_arrays, "_NATIVE_FROM", dice.take([0, 1 << 20])):
        if isinstance(expected, str):
            with pytest.raises(ValueError, match=expected):
                transition_kv_state(state, length, position, pad, wanted)
        elif expected is state:
            assert transition_kv_state(state, length, position, pad, wanted) is state
        else:
            result = transition_kv_state(state, length, position, pad, wanted)
            same(result, expected)
            assert not np.shares_memory(result, state)
    assert state.tobytes() == before


@settings(CASES, max_examples=9_000)
@given(seeds)
def test_shrinking_is_what_the_contract_says(seed):
    dice = Dice(seed)
    state, dtype, layout = a_state(dice)
    held = state.shape[2] if state.ndim > 2 else 3
    position = a_position(dice, held)
    length = position + (dice.take([-1, -position - 1]) if dice.seldom() else dice.take([0, 0, 1, 2, 7]))
    wanted = dice.take([None, None, np.float32, "float64"]) if dtype.kind != "c" else None
    poison(state, position)
    state.flags.writeable = layout != "read only"
    before = state.tobytes()
    expected = contract.shrunk(state, length, position, wanted)
    with mock.patch.object(_arrays, "_NATIVE_FROM", dice.take([0, 1 << 20])):
        if isinstance(expected, str):
            with pytest.raises(ValueError, match=expected):
                compact_kv_state(state, length, position, wanted)
        else:
            result = compact_kv_state(state, length, position, wanted)
            same(result, expected)
            assert not np.shares_memory(result, state)
    assert state.tobytes() == before


@settings(CASES, max_examples=1_000)
@given(st.integers(1, 99), st.integers(0, 99), st.data())
def test_there_and_back_keeps_what_is_in_use(length, more, data):
    position = data.draw(st.integers(0, length))
    state = np.arange(length, dtype=np.float32).reshape(1, 1, length, 1) + 1
    back = compact_kv_state(transition_kv_state(state, length + more, position), length, position)
    np.testing.assert_array_equal(back[0, 0, :, 0], [p + 1 if p < position else 0 for p in range(length)])


@settings(CASES, max_examples=1_000)
@given(st.lists(st.integers(1, 3), min_size=2, max_size=5), st.lists(st.integers(1, 3), min_size=2, max_size=5))
def test_shapes_are_accepted_exactly_when_a_state_fits(source, target):
    fits = len(source) == len(target) == 4 and source[2] <= target[2]
    fits = fits and [source[i] == target[i] for i in (0, 1, 3)] == [True] * 3
    if fits:
        assert validate_state_shapes(source, target) is True
    else:
        with pytest.raises(ValueError):
            validate_state_shapes(source, target)


@settings(CASES, max_examples=500)
@given(st.integers(1, 10**6), st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_transition_info_adds_up(source, target, position):
    info = get_transition_info(source, target, position)
    assert info["padded_positions_source"] + info["valid_tokens"] == source
    assert info["padded_positions_target"] + info["valid_tokens"] == target
    assert info["additional_capacity"] + source == target
    assert info["expansion_factor"] == target / source
