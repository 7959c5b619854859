"""Objects that hold named states: keyword calls, all names or none, and what the target keeps."""

import numpy as np
import pytest

from kvtide.state_transition import compact_coreml_state, transition_coreml_state


class States:
    """Holds arrays by name, hands out the very array it holds, and notes what was called."""

    def __init__(self, listed=True, **arrays):
        self.arrays = arrays
        self.writes = []
        if listed:
            self.state_names = list(arrays)

    def read_state(self, *, name):
        return self.arrays[name]

    def write_state(self, *, name, value):
        self.writes.append(name)
        self.arrays[name] = value


def ramp(length, dtype=np.float16, rows=2, heads=1, width=2):
    state = np.arange(1, length + 1, dtype=dtype)[None, None, :, None]
    return np.ascontiguousarray(np.broadcast_to(state, (rows, heads, length, width)))


def column(array):
    return array[0, 0, :, 0].tolist()


def test_one_state_grows_into_the_length_of_the_target():
    source, target = States(kv=ramp(4)), States(kv=ramp(6) * 0)
    assert transition_coreml_state(source, target, "kv", 3, 9.0) is None
    assert column(target.arrays["kv"]) == [1, 2, 3, 9, 9, 9]
    assert column(source.arrays["kv"]) == [1, 2, 3, 4]


def test_one_state_shrinks_into_the_length_of_the_target():
    source, target = States(kv=ramp(6)), States(kv=ramp(4))
    compact_coreml_state(source, target, "kv", 3)
    assert column(target.arrays["kv"]) == [1, 2, 3, 0]


def test_arguments_may_be_given_by_name():
    source, target = States(kv=ramp(4)), States(kv=ramp(6))
    transition_coreml_state(
        source_mlstate=source, target_mlstate=target, state_name="kv", current_position=1, pad_value=5.0
    )
    assert column(target.arrays["kv"]) == [1, 5, 5, 5, 5, 5]
    compact_coreml_state(source_mlstate=target, target_mlstate=source, state_name="kv", current_position=1)
    assert column(source.arrays["kv"]) == [1, 0, 0, 0]


@pytest.mark.parametrize("names", [["k", "v"], ("v", "k"), None])
def test_several_states_move_in_one_call(names):
    source, target = States(k=ramp(4), v=ramp(4) * 2), States(k=ramp(5), v=ramp(6))
    transition_coreml_state(source, target, current_position=2, names=names)
    assert column(target.arrays["k"]) == [1, 2, 0, 0, 0]
    assert column(target.arrays["v"]) == [2, 4, 0, 0, 0, 0]
    compact_coreml_state(target, source, current_position=1, names=names)
    assert column(source.arrays["v"]) == [2, 0, 0, 0]


def test_the_target_keeps_its_dtype():
    for position in (4, 2):
        for length in (4, 6):
            source, target = States(kv=ramp(4, np.float32)), States(kv=ramp(length, np.float16))
            transition_coreml_state(source, target, "kv", position)
            assert target.arrays["kv"].dtype == np.float16
    compact_coreml_state(source, target, "kv", 2)
    assert target.arrays["kv"].dtype == np.float16


def test_source_and_target_never_come_to_share_an_array():
    source, target = States(kv=ramp(4)), States(kv=ramp(4) * 0)
    transition_coreml_state(source, target, "kv", 4)
    target.arrays["kv"][:] = 7
    assert column(source.arrays["kv"]) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("present", "words"),
    [
        (ramp(6, rows=3), "Layer count mismatch"),
        (ramp(6, heads=2), "KV head count mismatch"),
        (ramp(6, width=3), "Head dimension mismatch"),
        (ramp(6)[0], "Expected 4D state tensor"),
        (ramp(3), "must be >="),
    ],
)
def test_a_target_that_does_not_fit_is_refused_and_nothing_is_written(present, words):
    source, target = States(k=ramp(4), v=ramp(4)), States(k=ramp(6), v=present)
    with pytest.raises(ValueError, match="state 'v': .*" + words):
        transition_coreml_state(source, target, current_position=2, names=["k", "v"])
    assert target.writes == []


def test_a_state_in_use_beyond_the_target_is_refused():
    source, target = States(kv=ramp(6)), States(kv=ramp(4))
    with pytest.raises(ValueError, match="Cannot compact to 4 positions: 5 are in use"):
        compact_coreml_state(source, target, "kv", 5)
    with pytest.raises(ValueError, match="cannot exceed"):
        compact_coreml_state(target, source, "kv", 5)
    assert target.writes == source.writes == []


def test_states_without_a_sequence_are_refused_by_name():
    source = States(kv=ramp(4), conv_state=np.zeros((8, 2), np.float16))
    with pytest.raises(ValueError, match=r"state 'conv_state': Expected 4D state tensor .*\(8, 2\)$"):
        transition_coreml_state(source, States(**source.arrays), current_position=2, names=None)


def test_all_names_need_a_list_of_them():
    with pytest.raises(ValueError, match="lists none"):
        transition_coreml_state(States(listed=False, kv=ramp(4)), States(kv=ramp(6)), current_position=2, names=None)
    with pytest.raises(ValueError, match="lists none"):
        compact_coreml_state(States(), States(kv=ramp(6)), current_position=2, names=None)


@pytest.mark.parametrize(
    ("state_name", "names", "error"),
    [("kv", ["kv"], TypeError), (None, "kv", TypeError), (None, [1], TypeError), (None, [], ValueError), (3, None, TypeError)],
)
def test_names_that_make_no_sense_are_refused(state_name, names, error):
    source, target = States(kv=ramp(4)), States(kv=ramp(6))
    with pytest.raises(error):
        transition_coreml_state(source, target, state_name, 2, names=names)
    assert target.writes == []


def test_a_call_without_any_name_is_a_type_error():
    with pytest.raises(TypeError, match="state_name must be a string"):
        transition_coreml_state(States(kv=ramp(4)), States(kv=ramp(6)), current_position=2)


def test_what_is_no_array_is_a_type_error():
    with pytest.raises(TypeError, match="state 'kv': source_state must be"):
        transition_coreml_state(States(kv=[1]), States(kv=ramp(6)), "kv", 2)
    with pytest.raises(TypeError, match="state 'kv': target state must be"):
        transition_coreml_state(States(kv=ramp(4)), States(kv="text"), "kv", 2)


def test_an_error_of_the_object_comes_through():
    with pytest.raises(KeyError):
        transition_coreml_state(States(kv=ramp(4)), States(other=ramp(6)), "kv", 2)


class Proxy:
    """What an MLState forwards to; on a Mac, a state of the Core ML runtime. It takes its arguments by place."""

    def __init__(self, **arrays):
        self.arrays = arrays

    def read_state(self, name):
        return self.arrays[name].copy()

    def write_state(self, name, value):
        assert value.dtype == self.arrays[name].dtype and value.shape == self.arrays[name].shape
        self.arrays[name] = value


def test_core_mls_own_states_are_moved():
    models = pytest.importorskip("coremltools.models")
    if not hasattr(models.model, "MLState"):
        pytest.skip("this coremltools has no MLState")
    small, large = Proxy(k=ramp(4), v=ramp(4) * 2), Proxy(k=ramp(6), v=ramp(6))
    source, target = models.model.MLState(small), models.model.MLState(large)
    transition_coreml_state(source, target, current_position=3, names=["k", "v"])
    assert column(large.arrays["k"]) == [1, 2, 3, 0, 0, 0] and column(large.arrays["v"]) == [2, 4, 6, 0, 0, 0]
    compact_coreml_state(target, source, "v", 2)
    assert column(small.arrays["v"]) == [2, 4, 0, 0] and column(small.arrays["k"]) == [1, 2, 3, 4]


def test_a_kvtide_state_is_such_an_object():
    pytest.importorskip("kvtide._native")
    import kvtide

    rows = np.random.default_rng(0).standard_normal((4, 2, 16, 32)).astype(np.float16)
    state = kvtide.State(layers=2, kv_heads=2, head_dim=32, capacity=16)
    state.write("kv_cache", rows, position=10)
    larger = state.fork()
    larger.expand(24)
    fake = States(kv_cache=np.zeros((4, 2, 20, 32), np.float16))
    transition_coreml_state(state, fake, current_position=10, names=None)
    np.testing.assert_array_equal(fake.arrays["kv_cache"][:, :, :10], rows[:, :, :10])
    assert not fake.arrays["kv_cache"][:, :, 10:].any()
    fake.arrays["kv_cache"][:, :, :10] *= 2
    transition_coreml_state(fake, larger, "kv_cache", 10)
    np.testing.assert_array_equal(larger.keys(1), rows[1, :, :10] * 2)
    compact_coreml_state(larger, state, "kv_cache", 10)
    np.testing.assert_array_equal(state.values(0), rows[2, :, :10] * 2)
