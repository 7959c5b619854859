"""Growing and shrinking array states: words of the refusals, their order, and the corners of the contract."""

import numpy as np
import pytest

from kvtide.state_transition import (
    compact_kv_state,
    create_attention_size_mask,
    get_transition_info,
    transition_kv_state,
    validate_state_shapes,
)


@pytest.fixture
def state():
    return np.arange(2 * 3 * 8 * 4, dtype=np.float16).reshape(2, 3, 8, 4)


def refusal(call, *args, **kwargs):
    with pytest.raises(ValueError) as error:
        call(*args, **kwargs)
    return str(error.value)


def test_the_first_thing_wrong_decides_the_message_when_growing(state):
    flat = refusal(transition_kv_state, state[0], 4, 99, "x")
    assert flat.startswith("Expected 4D state tensor") and flat.endswith("(3, 8, 4)")
    shorter = refusal(transition_kv_state, state, 4, 99)
    assert "must be >=" in shorter and "4" in shorter and "8" in shorter
    beyond = refusal(transition_kv_state, state, 8, 99)
    assert "cannot exceed" in beyond and "99" in beyond and "8" in beyond
    assert "negative" in refusal(transition_kv_state, state, 8, -1)
    assert transition_kv_state(state, 8, 8, dtype="no such type") is state


def test_the_first_thing_wrong_decides_the_message_when_shrinking(state):
    flat = refusal(compact_kv_state, state[None], 4, 99)
    assert flat.startswith("Expected 4D state tensor") and flat.endswith("(1, 2, 3, 8, 4)")
    crowded = refusal(compact_kv_state, state, 4, 99)
    assert "Cannot compact" in crowded and "99" in crowded and "4" in crowded
    beyond = refusal(compact_kv_state, state, 16, 9)
    assert "cannot exceed" in beyond and "9" in beyond and "8" in beyond
    assert "negative" in refusal(compact_kv_state, state, 4, -1)


@pytest.mark.parametrize("position", [8, None])
def test_nothing_to_do_gives_the_same_object(state, position):
    assert transition_kv_state(state, 8, position) is state
    assert transition_kv_state(state, 8, position, 7.0, np.float32) is state
    view = state[:, :, ::-1]
    assert transition_kv_state(view, 8, position) is view


def test_equal_length_with_stale_rows_erases_them(state):
    result = transition_kv_state(state, 8, 5, pad_value=-1)
    assert result is not state
    np.testing.assert_array_equal(result[:, :, :5], state[:, :, :5])
    assert (result[:, :, 5:] == -1).all()


def test_shrinking_always_makes_a_new_array(state):
    result = compact_kv_state(state, 8, 8)
    assert result is not state and not np.shares_memory(result, state)
    np.testing.assert_array_equal(result, state)


def test_shrinking_may_have_a_longer_target(state):
    result = compact_kv_state(state, 12, 8)
    assert result.shape == (2, 3, 12, 4)
    np.testing.assert_array_equal(result[:, :, :8], state)
    assert not result[:, :, 8:].any()


def test_position_zero_is_all_padding(state):
    assert (transition_kv_state(state, 9, 0, pad_value=2.5) == 2.5).all()
    assert not compact_kv_state(state, 2, 0).any()
    assert compact_kv_state(state, 0, 0).shape == (2, 3, 0, 4)


@pytest.mark.parametrize("stale", [np.nan, np.inf, -np.inf])
def test_a_stale_tail_never_reaches_the_result(state, stale):
    state[:, :, 5:] = stale
    for result in (
        transition_kv_state(state, 8, 5),
        transition_kv_state(state, 9, 5, dtype=np.float32),
        compact_kv_state(state, 6, 5),
        compact_kv_state(state, 8, 5),
    ):
        assert np.isfinite(result).all()
        np.testing.assert_array_equal(result[:, :, :5], state[:, :, :5])


def test_nan_in_use_is_kept_bit_for_bit(state):
    bits = state.view(np.uint16)
    bits[0, 0, 0, :] = [0x7E01, 0xFE02, 0x7C01, 0x8000]
    for result in (transition_kv_state(state, 9, 8), compact_kv_state(state, 3, 1)):
        np.testing.assert_array_equal(result.view(np.uint16)[0, 0, 0], bits[0, 0, 0])


def test_large_states_take_the_native_copy_to_the_same_result():
    random = np.random.default_rng(1)
    for shape, length, position in (((8, 2, 700, 64), 1400, 650), ((36, 1, 512, 256), 2048, 400), ((5, 1, 99999, 3), 1 << 17, 77777)):
        state = random.standard_normal(shape, dtype=np.float32)
        large = transition_kv_state(state, length, position, pad_value=-2)
        assert (large[:, :, position:] == -2).all()
        np.testing.assert_array_equal(large[:, :, :position], state[:, :, :position])
        small = compact_kv_state(large, position + 1, position)
        assert not small[:, :, position:].any()
        np.testing.assert_array_equal(small[:, :, :position], state[:, :, :position])
        zeroed = transition_kv_state(state, length, position)
        assert not zeroed[:, :, position:].any() and zeroed.flags.writeable
        np.testing.assert_array_equal(zeroed[:, :, :position], state[:, :, :position])


def test_arrays_of_a_subclass_give_plain_arrays(tmp_path):
    mapped = np.memmap(tmp_path / "state", np.float16, "w+", shape=(1, 1, 4, 2))
    mapped[:] = 3
    assert type(transition_kv_state(mapped, 6, 4)) is np.ndarray


@pytest.mark.parametrize(
    ("call", "args"),
    [
        (transition_kv_state, ([[1]], 4)),
        (transition_kv_state, (None, 4)),
        (transition_kv_state, (np.ma.zeros((1, 1, 2, 2)), 4)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2), object), 4)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2), "S3"), 4)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2), "f4,f4"), 4)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), 4.0)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), "4")),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), 4, 1.5)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), 4, True)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), 4, 2, "zero")),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), 4, 2, None)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), 4, 2, 1j)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), 4, 2, 0, "no such type")),
        (transition_kv_state, (np.zeros((1, 1, 2, 2)), 4, 2, 0, object)),
        (transition_kv_state, (np.zeros((1, 1, 2, 2), np.complex64), 4, 2, 0, np.float32)),
        (compact_kv_state, ((1, 1, 2, 2), 1, 1)),
        (compact_kv_state, (np.zeros((1, 1, 2, 2)), 1, None)),
        (compact_kv_state, (np.zeros((1, 1, 2, 2)), 1.5, 1)),
        (compact_kv_state, (np.zeros((1, 1, 2, 2)), 1, 1, "S4")),
        (create_attention_size_mask, (8.0, 4, 2)),
        (create_attention_size_mask, (8, "4", 2)),
        (create_attention_size_mask, (8, 4, None)),
    ],
)
def test_what_is_no_array_integer_number_or_dtype_is_a_type_error(call, args):
    with pytest.raises(TypeError):
        call(*args)


@pytest.mark.parametrize(
    ("dtype", "pad"),
    [(np.int8, 128), (np.int8, 0.5), (np.int8, np.nan), (np.uint8, -1), (np.bool_, 2), (np.float16, 1e6), (np.float16, 10**400)],
)
def test_padding_that_the_dtype_cannot_hold_is_refused(dtype, pad):
    assert "does not fit" in refusal(transition_kv_state, np.zeros((1, 1, 2, 2), dtype), 4, 2, pad)


@pytest.mark.parametrize("pad", [np.inf, -np.inf, np.nan])
def test_padding_may_be_no_number_when_a_caller_says_so(state, pad):
    np.testing.assert_array_equal(transition_kv_state(state, 9, 8, pad)[:, :, 8:], np.float16(pad))


def test_integers_of_numpy_are_integers(state):
    result = transition_kv_state(state, np.int64(9), np.uint8(3), np.float32(1))
    assert result.shape == (2, 3, 9, 4) and (result[:, :, 3:] == 1).all()


def test_transition_info_has_these_keys_in_this_order():
    assert list(get_transition_info(256, 512, 200).items()) == [
        ("source_seq_length", 256),
        ("target_seq_length", 512),
        ("current_position", 200),
        ("valid_tokens", 200),
        ("padded_positions_source", 56),
        ("padded_positions_target", 312),
        ("expansion_factor", 2.0),
        ("additional_capacity", 256),
    ]
    assert type(get_transition_info(256, 512, 200)["expansion_factor"]) is float


def test_shapes_are_compared_in_the_order_of_the_contract():
    assert refusal(validate_state_shapes, (2, 3, 8), (1,)) == "Source state must be 4D, got 3D"
    assert refusal(validate_state_shapes, (2, 3, 8, 4), (1,)) == "Target state must be 4D, got 1D"
    assert "Layer count mismatch" in refusal(validate_state_shapes, (2, 3, 8, 4), (1, 1, 4, 1))
    assert "KV head count mismatch" in refusal(validate_state_shapes, (2, 3, 8, 4), (2, 1, 4, 1))
    assert "Head dimension mismatch" in refusal(validate_state_shapes, (2, 3, 8, 4), (2, 3, 4, 1))
    assert "must be >= source" in refusal(validate_state_shapes, (2, 3, 8, 4), (2, 3, 4, 4))
    assert validate_state_shapes((2, 3, 8, 4), [2, 3, 8, 4]) is True


def test_the_attention_mask_shows_exactly_the_newest_positions():
    for length in range(1, 8):
        for size in range(1, 10):
            for position in range(length + 1):
                mask = create_attention_size_mask(length, size, position)
                assert mask.shape == (1, 1, length, length) and mask.dtype == np.float32
                for query in range(length):
                    for key in range(length):
                        seen = query <= position and max(0, query - size + 1) <= key <= query
                        assert mask[0, 0, query, key] == (0 if seen else -np.inf), (length, size, position)


@pytest.mark.parametrize("args", [(0, 1, 0), (8, 0, 0), (8, -1, 0), (8, 4, -1), (8, 4, 9), (-8, 4, 0)])
def test_masks_that_make_no_sense_are_refused(args):
    with pytest.raises(ValueError):
        create_attention_size_mask(*args)
