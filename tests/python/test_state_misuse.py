"""Wrong use of a KV memory raises Python exceptions, and the memory is as usable afterwards as before. Never a signal."""

import copy
import pickle

import numpy as np
import pytest

import kvtide
from kvtide import _native, errors
from together import run_together

SHAPE = {"layers": 2, "kv_heads": 2, "head_dim": 32}


@pytest.fixture
def state():
    state = kvtide.State(**SHAPE, capacity=64)
    state.write("kv_cache", np.ones((4, 2, 64, 32), np.float16), position=50)
    return state


SHAPES = [
    ({}, TypeError),
    ({"layers": 2, "capacity": 4}, TypeError),
    ({"layers": 2, "kv_heads": 2, "capacity": 4}, TypeError),
    ({"layers": 0, "kv_heads": 2, "head_dim": 32, "capacity": 4}, ValueError),
    ({"layers": 2**40, "kv_heads": 2, "head_dim": 32, "capacity": 4}, ValueError),
    ({"layers": [], "capacity": 4}, ValueError),
    ({"layers": [(1, 32)], "capacity": 4}, TypeError),
    ({"layers": [(1, 32, 0)], "capacity": 4}, ValueError),
    ({"layers": [(0, 32, None)], "capacity": 4}, ValueError),
    ({"layers": [(2**40, 32, None)], "capacity": 4}, ValueError),
    ({"layers": ["abc"], "capacity": 4}, TypeError),
    ({"layers": "ab", "capacity": 4}, TypeError),
    ({"layers": [3], "capacity": 4}, TypeError),
    ({**SHAPE, "capacity": 0}, ValueError),
    ({**SHAPE, "capacity": -1}, ValueError),
    ({**SHAPE, "capacity": 1.5}, TypeError),
    ({**SHAPE, "capacity": 2**50}, ValueError),
    ({**SHAPE, "capacity": 2**80}, ValueError),
    ({**SHAPE, "capacity": 4, "key_type": "f64"}, ValueError),
    ({**SHAPE, "capacity": 4, "key_type": None}, TypeError),
    ({**SHAPE, "capacity": 4, "value_type": np.float16}, TypeError),
    ({**SHAPE, "head_dim": 33, "capacity": 4, "key_type": "q8_0"}, ValueError),
    ({**SHAPE, "head_dim": 2**20, "capacity": 4}, ValueError),
    ({**SHAPE, "capacity": 4, "rolling": 3}, TypeError),
    ({**SHAPE, "capacity": 4, "rolling": (0, 0)}, ValueError),
    ({**SHAPE, "capacity": 4, "rolling": (0, 2), "rotary": False}, ValueError),
    ({**SHAPE, "capacity": 4, "slack": -1}, ValueError),
    ({**SHAPE, "capacity": 4, "slack": "x"}, TypeError),
]


@pytest.mark.parametrize(("shape", "error"), SHAPES, ids=str)
def test_shapes_that_make_no_sense_make_no_state(shape, error):
    with pytest.raises(error):
        kvtide.State(**shape)


USES = {
    "position": lambda s: s.position,
    "rows": lambda s: s.rows,
    "capacity": lambda s: s.capacity,
    "room": lambda s: s.room,
    "nbytes": lambda s: s.nbytes,
    "shared_nbytes": lambda s: s.shared_nbytes,
    "capacity_nbytes": lambda s: s.capacity_nbytes,
    "attention_size": lambda s: s.attention_size,
    "layers": lambda s: s.layers,
    "key_type": lambda s: s.key_type,
    "policy": lambda s: s.policy,
    "names": lambda s: s.names,
    "tokens": lambda s: s.tokens,
    "identity": lambda s: s.identity,
    "iteration": list,
    "len": len,
    "plan": lambda s: s.plan("compact", 60),
    "apply": lambda s: s.apply("compact", 60),
    "expand": lambda s: s.expand(100),
    "compact": lambda s: s.compact(60),
    "truncate": lambda s: s.truncate(1),
    "drop": lambda s: s.drop(1, 2),
    "set_attention_size": lambda s: s.set_attention_size(4),
    "fork": lambda s: s.fork(),
    "save": lambda s: s.save("never-written.kv"),
    "keys": lambda s: s.keys(0),
    "values": lambda s: s.values(1, copy=True),
    "positions": lambda s: s.positions(0),
    "read": lambda s: s.read("kv_cache"),
    "arrays": lambda s: s.arrays("stacked"),
    "write": lambda s: s.write("kv_cache", np.ones((4, 2, 64, 32), np.float16)),
    "read_state": lambda s: s.read_state(name="kv_cache"),
    "with": lambda s: s.__enter__(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_closed_state_says_so(state, use):
    state.close()
    state.close()
    assert repr(state) == "<kvtide.State, closed>"
    with pytest.raises(errors.ClosedError, match="closed"):
        use(state)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_state_of_a_closed_session_says_so(session, use):
    session.read("ab")
    state = session.state
    session.close()
    with pytest.raises(errors.ClosedError, match="this session was closed"):
        use(state)
    assert repr(state) == "<kvtide.State, closed>"


ANYTIME = ("position", "rows", "capacity", "room", "nbytes", "shared_nbytes", "capacity_nbytes", "attention_size",
           "layers", "key_type", "policy", "names", "len", "with")  # fmt: skip


@pytest.mark.parametrize("use", [use for name, use in USES.items() if name not in ANYTIME])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_state_of_a_busy_session_is_busy_in_every_thread(session, use, elsewhere):
    state = session.state
    session.read("ab")
    caught = []

    def work():
        with pytest.raises((errors.BusyError, ValueError)) as error:
            use(state)
        caught.append(error.value)

    def progress(done, total):
        if elsewhere:
            run_together(work)
        else:
            work()

    session.read("abc", progress=progress)
    # Writing first looks at the shape, which does not fit this model.
    assert isinstance(caught[0], errors.BusyError) or use is USES["write"]
    assert session.position == 5 and not session.busy


ARGUMENTS = [
    (lambda s: s.expand(None), TypeError),
    (lambda s: s.expand("100"), TypeError),
    (lambda s: s.expand(100.0), TypeError),
    (lambda s: s.expand(True), TypeError),
    (lambda s: s.expand(), TypeError),
    (lambda s: s.expand(1, 2), TypeError),
    (lambda s: s.compact(-(2**80)), ValueError),
    (lambda s: s.truncate(2**80), ValueError),
    (lambda s: s.truncate(None), TypeError),
    (lambda s: s.drop(1), TypeError),
    (lambda s: s.drop("a", "b"), TypeError),
    (lambda s: s.drop(0, 2**80), ValueError),
    (lambda s: s.drop(1, 2, True), TypeError),
    (lambda s: s.set_attention_size("all"), TypeError),
    (lambda s: s.set_attention_size(-(2**80)), ValueError),
    (lambda s: s.plan(3, 4), TypeError),
    (lambda s: s.plan("expand"), TypeError),
    (lambda s: s.apply("expand", size=3), TypeError),
    (lambda s: s.keys(2), ValueError),
    (lambda s: s.keys(-1), ValueError),
    (lambda s: s.keys("0"), TypeError),
    (lambda s: s.keys(0.0), TypeError),
    (lambda s: s.values(2**80), ValueError),
    (lambda s: s.positions(2), ValueError),
    (lambda s: s.read(None), TypeError),
    (lambda s: s.read("kv"), ValueError),
    (lambda s: s.read("layers.2.k_state"), ValueError),
    (lambda s: s.read("layers.-1.k_state"), ValueError),
    (lambda s: s.read("kv_cache", capacity=49), ValueError),
    (lambda s: s.read("kv_cache", capacity=-1), ValueError),
    (lambda s: s.read("kv_cache", capacity=2.5), TypeError),
    (lambda s: s.read("kv_cache", dtype=np.int8), TypeError),
    (lambda s: s.read("kv_cache", dtype="no such"), TypeError),
    (lambda s: s.arrays("row"), ValueError),
    (lambda s: s.arrays(3), TypeError),
    (lambda s: s.write(), TypeError),
    (lambda s: s.write("kv_cache"), TypeError),
    (lambda s: s.write({"pastLen": [1]}), ValueError),
    (lambda s: s.write({**s.arrays("stacked"), "pastLen": [1.5]}), TypeError),
    (lambda s: s.write({**s.arrays("stacked"), "pastLen": [1, 2]}), TypeError),
    (lambda s: s.write(s.arrays("stacked"), position=3), ValueError),
    (lambda s: s.read_state("kv_cache"), TypeError),
    (lambda s: s.read_state(name="keys"), ValueError),
    (lambda s: s.save(None), TypeError),
    (lambda s: s.save("no/such/folder/x.kv"), OSError),
    (lambda s: s.save("a\0b"), ValueError),
    (lambda s: kvtide.State.load(None), TypeError),
    (lambda s: kvtide.State.load("no/such/file.kv"), FileNotFoundError),
    (lambda s: kvtide.State.load("."), kvtide.Error),
    (lambda s: setattr(s, "position", 3), AttributeError),
    (lambda s: hash(s) and s["a"], TypeError),
]


@pytest.mark.parametrize(("call", "error"), ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_arguments_that_make_no_sense_are_refused_and_change_nothing(state, call, error):
    with pytest.raises(error):
        call(state)
    assert (state.position, state.rows, state.capacity, state.views) == (50, 50, 64, 0)
    assert state.read("kv_cache", capacity=50).all()
    assert state.truncate(49).rows_dropped == 1


NATIVE = [
    lambda s: s.view(0, True, 0, 51),
    lambda s: s.view(0, True, -1, 5),
    lambda s: s.view(0, True, 5, 5),
    lambda s: s.view(2, True, 0, 5),
    lambda s: s.view(-1, True, 0, 5),
    lambda s: s.view(2**40, True, 0, 5),
    lambda s: s.read(0, True, 0, 5, np.zeros(3, np.float32)),
    lambda s: s.read(0, True, 5, 0, np.zeros(3, np.float32)),
    lambda s: s.read(0, True, -5, 0, np.zeros(320, np.float32)),
    lambda s: s.read(9, True, 0, 5, np.zeros(320, np.float32)),
    lambda s: s.read(0, True, 0, 5, np.zeros(320)),
    lambda s: s.write(0, True, 0, 5, np.zeros(3, np.float32)),
    lambda s: s.write(0, True, 60, 64, np.zeros(256, np.float32)),
    lambda s: s.write(7, True, 0, 5, np.zeros(320, np.float32)),
    lambda s: s.write_raw(0, True, 0, 5, np.zeros(3, np.uint8)),
    lambda s: s.write_raw(0, False, 0, 5, np.zeros(640, np.int8)),
    lambda s: s.replace(s),
    lambda s: s.replace(None),
    lambda s: s.runs(5),
    lambda s: s.plain_rows(-1),
    lambda s: s.apply("fly", 1),
    lambda s: s.apply("drop", None, -5),
    lambda s: _native.State.of(s),
    lambda s: _native.State([(1, 32, None)], "f16", "f16", 8, 0, None, True, 9, [], False),
    lambda s: _native.State([(1, 32, None)], "f16", "f16", 8, 0, None, True, -1, [], False),
    lambda s: _native.State([(1, 32, None)], "f16", "f16", 8, 0, None, True, 3, [1], False),
    lambda s: _native.State([], "f16", "f16", 8, 0, None, True, 3, [], False),
]


@pytest.mark.parametrize("use", NATIVE, ids=range(len(NATIVE)))
def test_even_the_native_state_only_raises(state, use):
    before = state.read("kv_cache").tobytes()
    with pytest.raises((TypeError, ValueError)):
        use(state._native)
    assert state.read("kv_cache").tobytes() == before and state.views == 0


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_memory_can_not_be_copied_by_accident(state, how):
    with pytest.raises((TypeError, pickle.PicklingError)):
        how(state)


@pytest.mark.parametrize("wrong", [None, 3, "state.kv", object(), np.zeros(3)])
def test_a_session_goes_on_from_states_only(session, wrong):
    with pytest.raises(TypeError):
        session.restore(wrong)


def test_a_state_of_another_shape_or_without_tokens_is_no_text(session, state):
    session.read("ab")
    with pytest.raises(errors.InvalidArgumentError, match="0 tokens for 50 positions"):
        session.restore(state)
    state.write(state.arrays(), tokens=[5] * 50)
    with pytest.raises(errors.InvalidArgumentError, match="another shape"):
        session.restore(state)
    state.write(state.arrays(), tokens=[64] * 50)
    with pytest.raises(errors.InvalidArgumentError, match="outside the vocabulary"):
        session.restore(state)
    arrays = session.state.arrays()
    with pytest.raises(errors.InvalidArgumentError, match="tokens="):
        session.state.write(arrays, position=1)
    assert list(session) == session.model.tokenizer.encode("ab")


def test_a_state_closed_in_a_callback_leaves_the_session_alone(session):
    held = [session.state]
    session.read("abc", progress=lambda *_: held.pop().close())
    assert session.position == 3


def test_an_array_dropped_in_another_thread_is_let_go_of(state):
    arrays = [state.keys(0) for _ in range(100)]
    run_together(*[lambda: [arrays.pop() for _ in range(25)]] * 4, awaited="arrays that are dropped")
    assert state.views == 0
