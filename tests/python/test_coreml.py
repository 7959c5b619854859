"""kvtide.coreml: packages called as coremltools calls them."""

import copy
import os
import signal
import threading
import time

import numpy as np
import pytest

import kvtide
import kvtide.coreml as ct
from kvtide import _native  # noqa: F401  needs the extension
from kvtide.state_transition import transition_coreml_state

from together import LIMIT_S, join, start

# cache += x; y = the sum of each row. `twice` adds it two times. The text is what `kvtide coreml inspect --mil` prints.
SUMS = """program(1.3)
{
    func once<ios18>(tensor<fp16, [2, 3]> x, state<tensor<fp16, [2, 3]>> cache) {
        tensor<fp16, [2, 3]> old = read_state(input = cache)[name = string("old")];
        tensor<fp16, [2, 3]> new = add(x = old, y = x)[name = string("new")];
        write_state(data = new, input = cache)[name = string("w")];
        tensor<fp16, [2]> y = reduce_sum(x = new, axes = tensor<int32, [1]>([1]), keep_dims = bool(false))[name = string("y")];
    } -> (y);
    func twice<ios18>(tensor<fp16, [2, 3]> x, state<tensor<fp16, [2, 3]>> cache) {
        tensor<fp16, [2, 3]> old = read_state(input = cache)[name = string("old")];
        tensor<fp16, [2, 3]> two = add(x = x, y = x)[name = string("two")];
        tensor<fp16, [2, 3]> new = add(x = old, y = two)[name = string("new")];
        write_state(data = new, input = cache)[name = string("w")];
        tensor<fp16, [2]> y = reduce_sum(x = new, axes = tensor<int32, [1]>([1]), keep_dims = bool(false))[name = string("y")];
    } -> (y);
}
"""

GATHER = """program(1.3)
{
    func main<ios18>(tensor<int32, [1, ?]> ids, tensor<fp32, [4, 2]> table) {
        tensor<fp32, [1, ?, 2]> rows = gather(x = table, indices = ids, axis = int32(0))[name = string("rows")];
    } -> (rows);
}
"""


def slow(steps=300, size=1024):
    """A state that is written first, and seconds of products behind it."""
    lines = [
        "program(1.3)\n{",
        f"    func main<ios18>(tensor<fp32, [{size}, {size}]> x, tensor<fp16, [1]> one, state<tensor<fp16, [1]>> calls) {{",
        '        tensor<fp16, [1]> old = read_state(input = calls)[name = string("old")];',
        '        tensor<fp16, [1]> new = add(x = old, y = one)[name = string("new")];',
        '        write_state(data = new, input = calls)[name = string("w")];',
    ]
    last = "x"
    for i in range(steps):
        lines.append(f'        tensor<fp32, [{size}, {size}]> p{i} = matmul(x = {last}, y = x)[name = string("p{i}")];')
        last = f"p{i}"
    return "\n".join([*lines, f"    }} -> ({last});\n}}\n"])


SLOW = {"x": np.zeros((1024, 1024), np.float32), "one": np.ones(1)}


@pytest.fixture
def write(tmp_path):
    def write(text, name="model.mil"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def sums(write):
    return ct.Model(write(SUMS), threads=1)


@pytest.fixture(scope="module")
def goldens(request):
    from pathlib import Path

    return Path(__file__).parent.parent / "goldens" / "coreml"


def test_a_state_goes_along_from_call_to_call(sums):
    state = sums.make_state()
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float16)
    assert sums.predict({"x": x}, state=state)["y"].tolist() == [6, 15]
    y = sums.predict({"x": x}, state)["y"]
    assert y.tolist() == [12, 30] and y.dtype == np.float16
    assert state.read_state("cache").tolist() == (2 * x).tolist()
    state.write_state(name="cache", value=np.zeros((2, 3)))
    assert sums.predict({"x": x}, state)["y"].tolist() == [6, 15]
    assert sums.report.calls == 3 and sums.report.state_bytes_copied == 0


def test_the_names_of_coremltools_do(write):
    model = ct.models.MLModel(
        str(write(SUMS)), compute_units=ct.ComputeUnit.CPU_AND_NE, function_name="twice", skip_model_load=False
    )
    state = model.make_state()
    assert model.predict({"x": np.ones((2, 3))}, state=state)["y"].tolist() == [6, 6]
    spec = model.get_spec()
    assert [each.name for each in spec.description.input] == ["x"]
    assert list(spec.description.input[0].type.multiArrayType.shape) == [2, 3]
    assert list(spec.description.state[0].type.stateType.arrayType.shape) == [2, 3]
    assert [each.name for each in spec.description.functions] == ["once", "twice"]
    assert spec.description.functions[0].state_nbytes == 12
    with pytest.raises(kvtide.Error, match="was not loaded"):
        model.predict({"x": np.ones((2, 3))}, state, function_name="once")


def test_functions_and_models_share_a_state(sums, write):
    state = sums.make_state()
    other = ct.MLModel(write(SUMS, "other.mil"), function_name="twice")
    assert sums.predict({"x": np.ones((2, 3))}, state, function_name="twice")["y"].tolist() == [6, 6]
    assert other.predict({"x": np.ones((2, 3))}, state)["y"].tolist() == [12, 12]
    assert sums.predict({"x": np.ones((2, 3))}, state)["y"].tolist() == [15, 15]


def test_a_fork_goes_its_own_way(sums):
    state = sums.make_state()
    sums.predict({"x": np.ones((2, 3))}, state)
    for twin in (state.fork(), copy.copy(state), copy.deepcopy(state)):
        assert sums.predict({"x": np.ones((2, 3))}, twin)["y"].tolist() == [6, 6]
    assert state.read_state("cache").tolist() == np.ones((2, 3)).tolist()
    assert state.nbytes == 12 and "cache float16 [2, 3], 12 bytes" in repr(state)


def test_what_was_read_is_a_copy(sums):
    state = sums.make_state()
    before = state.read_state("cache")
    sums.predict({"x": np.ones((2, 3))}, state)
    assert not before.any()
    before += 7
    assert state.read_state("cache").max() == 1


def test_inputs_are_converted_when_nothing_is_lost(write):
    model = ct.Model(write(GATHER))
    table = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    for ids in ([[2, 0]], np.array([[2, 0]]), np.array([[2.0, 0.0]]), np.array([[2, 0]], np.uint8)):
        assert model.predict({"ids": ids, "table": table})["rows"].tolist() == [[[4, 5], [0, 1]]]
    assert len(model.predict([{"ids": [[1]], "table": table}] * 2)) == 2
    with pytest.raises(kvtide.errors.InvalidArgumentError, match="whole numbers only"):
        model.predict({"ids": [[0.5]], "table": table})
    with pytest.raises(kvtide.errors.InvalidArgumentError, match="int32, which cannot hold 4294967296"):
        model.predict({"ids": [[2**32]], "table": table})
    with pytest.raises(TypeError, match="array of numbers"):
        model.predict({"ids": [["a"]], "table": table})


def test_tensors_of_torch_go_in(write):
    torch = pytest.importorskip("torch")
    model = ct.Model(write(GATHER))
    table = torch.arange(8.0).reshape(4, 2).requires_grad_()
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        assert model.predict({"ids": torch.tensor([[3]]), "table": table.to(kind)})["rows"].tolist() == [[[6, 7]]]


def test_what_does_not_fit_is_refused_and_changes_nothing(sums, write):
    state, x = sums.make_state(), np.ones((2, 3))
    sums.predict({"x": x}, state)
    other = ct.Model(write(slow(1, 4), "other.mil")).make_state()
    for inputs, given, says in (
        ({"x": np.ones((3, 2))}, state, r"'x' has shape \[3, 2\]; \[2, 3\] is right"),
        ({}, state, "input 'x' of function once is missing"),
        ({"x": x, "z": x}, state, "has no input 'z'; its inputs: x"),
        ({"x": x}, None, "needs a state"),
        ({"x": x}, other, "that of another model"),
    ):
        with pytest.raises(kvtide.errors.InvalidArgumentError, match=says):
            sums.predict(inputs, given)
    with pytest.raises(kvtide.errors.InvalidArgumentError, match="no state 'keys'; there are: cache"):
        state.write_state("keys", x)
    with pytest.raises(kvtide.errors.InvalidArgumentError, match=r"shape \[2, 3\], not \[3\]"):
        state.write_state("cache", np.ones(3))
    with pytest.raises(kvtide.errors.InvalidArgumentError, match="no state 'keys'"):
        state.read_state("keys")
    with pytest.raises(TypeError, match="make_state"):
        sums.predict({"x": x}, {"cache": x})
    assert state.read_state("cache").tolist() == x.tolist()


def test_files_that_are_none(tmp_path, write, goldens):
    with pytest.raises(kvtide.errors.NotFoundError):
        ct.Model(tmp_path / "none.mlpackage")
    with pytest.raises(kvtide.errors.BadFormatError, match="line 1"):
        ct.Model(write("gibberish"))
    with pytest.raises(kvtide.errors.UnsupportedError, match="while_loop"):
        ct.Model(goldens / "loop.mlpackage")
    with pytest.raises(kvtide.errors.NotFoundError, match="no function 'x'"):
        ct.Model(write(SUMS), function_name="x")


def test_a_package_of_coremltools(goldens):
    model = ct.MLModel(goldens / "functions.mlpackage")
    assert model.functions == ["infer", "prefill"] and model.function_name == "infer"
    ids = model.input_description["ids"]
    assert (ids.dtype, ids.shape[0], ids.ranges) == (np.int32, 1, ((1, 1), (1, 16)))
    assert model.state_description["kCache"].nbytes == 1024
    state = model.make_state()
    first = model.predict({"ids": [[1, 2, 3]]}, state, function_name="prefill")["logits"]
    again = model.predict({"ids": [[1, 2, 3]]}, state)["logits"]
    assert first.shape == (1, 3, 24) and np.array_equal(first, again)
    assert state.read_state("kCache")[0, :3].any() and not state.read_state("kCache")[0, 3:].any()
    assert model.inspect()["weights"] and model.lint() == ct.lint(goldens / "functions.mlpackage")
    assert ct.inspect(goldens / "pipeline.mlpackage")["kind"] == "pipeline"
    both = ct.MLModel(goldens / "pipeline.mlpackage")
    assert both.predict({"x": np.ones((1, 8))})["z"].shape == (1, 32)


def test_findings_have_their_place(write):
    lost = "\n".join(line for line in SUMS.splitlines() if "write_state" not in line)
    found = ct.lint(write(lost))
    assert {each.severity for each in found[:2]} == {"error"} and found[0].line > 0
    assert ct.Model(write(lost)).lint() == found


def test_states_are_resized_as_those_of_core_ml_are(write):
    def model(rows):
        text = SUMS.replace("[2, 3]", f"[1, 2, {rows}, 4]").replace("[2]> y", "[1, 2, 4]> y").replace("([1])", "([2])")
        return ct.Model(write(text, f"{rows}.mil"))

    small, large = model(4), model(8)
    source, target = small.make_state(), large.make_state()
    small.predict({"x": np.arange(32).reshape(1, 2, 4, 4)}, source)
    transition_coreml_state(source, target, names=None, current_position=3)
    kept, moved = source.read_state("cache"), target.read_state("cache")
    assert np.array_equal(moved[:, :, :3], kept[:, :, :3]) and not moved[:, :, 3:].any()


def wait_until_busy(model, thread):
    """Without calls of its own, which would be in the way of the one that is awaited."""
    end = time.monotonic() + LIMIT_S
    while not model._native.busy:
        assert thread.is_alive() and time.monotonic() < end, "the call ended before it was seen"
        time.sleep(0.001)


def test_one_caller_at_a_time_and_a_call_that_is_cancelled(write):
    model = ct.Model(write(slow()))
    state = model.make_state()
    raised = []
    thread = start(lambda: model.predict(SLOW, state), raised)
    wait_until_busy(model, thread)
    with pytest.raises(kvtide.errors.BusyError, match="a state serves one caller"):
        state.read_state("calls")
    with pytest.raises(kvtide.errors.BusyError, match="a model serves one caller"):
        model.predict(SLOW, model.make_state())
    with pytest.raises(kvtide.errors.BusyError, match="a model serves one caller"):
        model.close()
    model.cancel()
    join(thread, "a call that was cancelled")
    assert isinstance(raised[0], kvtide.errors.CancelledError)
    assert state.read_state("calls").tolist() == [0]


def test_ctrl_c_ends_a_call(write):
    model = ct.Model(write(slow()))
    state = model.make_state()

    def interrupt():
        wait_until_busy(model, threading.main_thread())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        thread = start(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.predict(SLOW, state)
        join(thread, "the thread that interrupts")
    finally:
        signal.signal(signal.SIGINT, before)
    assert state.read_state("calls").tolist() == [0]


def test_a_closed_model_says_so(sums):
    state = sums.make_state()
    with sums:
        sums.predict({"x": np.ones((2, 3))}, state)
    for use in (sums.make_state, lambda: sums.predict({"x": np.ones((2, 3))}, state), lambda: sums.report):
        with pytest.raises(kvtide.errors.ClosedError):
            use()
    assert "closed" in repr(sums) and state.read_state("cache").any()
