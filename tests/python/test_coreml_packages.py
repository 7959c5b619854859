"""What kvtide.coreml does with packages beside calling them: writes, checks, compares, keeps and resizes their states."""

import json
import os
from pathlib import Path

import kvtide
import kvtide.coreml as ct
import numpy as np
import pytest
from kvtide import errors

FOLDERS = Path(__file__).resolve().parent.parent / "goldens" / "folders"
LLAMA = FOLDERS / "llama-f32"


def arrays_of(model: ct.Model, token: int, at: int) -> dict[str, np.ndarray]:
    """One token by the contract that is in the metadata."""
    contract = json.loads(model.user_defined_metadata["co.kvtide.contract"])
    slots = contract["slots"]
    write = np.zeros((1, 1, slots, 1), np.float32)
    write[0, 0, at, 0] = 1
    seen = np.where(np.arange(slots) <= at, 0.0, -1e4).astype(np.float32).reshape(1, 1, 1, slots)
    arrays = {contract["tokens"]: np.array([[token]]), contract["write_mask"]: write}
    arrays |= {mask["input"]: seen for mask in contract["masks"]}
    for rope in contract["ropes"]:
        angles = at * np.array(rope["frequencies"])[None]
        arrays |= {rope["cos"]: np.cos(angles), rope["sin"]: np.sin(angles)}
    return arrays


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    for slots in (12, 32):
        ct.export(LLAMA, folder / f"{slots}.mlpackage", slots=slots, threads=1)
    return folder


def test_export_says_each_package_and_writes_a_folder(tmp_path):
    seen: list[str] = []
    path = ct.export(LLAMA, tmp_path / "layers", chunks="per-layer", tokens=[1, 8], slots=16, weights="int8-channel",
                     progress=seen.append)  # fmt: skip
    names = sorted(name for name in os.listdir(path) if name.endswith(".mlpackage"))
    assert len(names) == len(seen) >= 4 and "manifest.json" in os.listdir(path)
    assert ct.Model(os.path.join(path, names[0])).input_description
    with pytest.raises(errors.InvalidArgumentError, match="layers"):
        ct.export(LLAMA, path)
    with pytest.raises(errors.InvalidArgumentError, match="weights must be"):
        ct.export(LLAMA, tmp_path / "x.mlpackage", weights="int3")
    with pytest.raises(errors.InvalidArgumentError, match="per-layer"):
        ct.export(LLAMA, tmp_path / "x.mlpackage", chunks="layers")
    assert not (tmp_path / "x.mlpackage").exists()


def test_an_export_that_is_stopped_leaves_nothing(tmp_path):
    def stop(_: str) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        ct.export(LLAMA, tmp_path / "x.mlpackage", progress=stop)
    assert not os.listdir(tmp_path)


def test_lint_runs_a_package_when_asked(packages):
    assert not [each for each in ct.lint(packages / "32.mlpackage", run=True) if each.severity != "hint"]


def test_a_package_is_validated_beside_its_model(packages):
    model = ct.Model(packages / "32.mlpackage")
    text = [7, 3, 41, 12, 5, 47, 22, 9, 18, 2, 31, 6]
    report = kvtide.validate(model, LLAMA, text, free=4, threads=1)
    assert report.passed, str(report)
    assert kvtide.validate(str(packages / "32.mlpackage"), LLAMA, text, free=4, threads=1).passed
    assert not kvtide.validate(model, FOLDERS / "mistral-f16-shards", text, free=4, threads=1).passed
    with pytest.raises(errors.InvalidArgumentError, match="made from"):
        kvtide.validate(model)


def test_a_text_moves_to_longer_states_and_back(packages):
    small, large = ct.Model(packages / "12.mlpackage"), ct.Model(packages / "32.mlpackage")
    text = [7, 3, 41, 12, 5, 47, 22, 9, 18, 2, 31, 6, 44, 8, 13]

    def read(model, state, first, last):
        for at in range(first, last):
            logits = model.predict(arrays_of(model, text[at], at), state)["logits"]
        return logits

    straight = large.make_state()
    wanted = read(large, straight, 0, 15)
    state = small.make_state()
    read(small, state, 0, 10)
    grown = large.make_state_from(state, 10)
    back = small.make_state_from(grown, 10)
    for name in state.state_names:
        assert np.array_equal(back.read_state(name), state.read_state(name))
    assert np.array_equal(read(large, grown, 10, 15), wanted)
    with pytest.raises(errors.ContextFullError, match="room for 12"):
        small.make_state_from(grown, 15)


def test_a_snapshot_knows_its_package(packages, tmp_path):
    model, other = ct.Model(packages / "32.mlpackage"), ct.Model(packages / "12.mlpackage")
    state = model.make_state()
    model.predict(arrays_of(model, 7, 0), state)
    model.save_state(state, tmp_path / "one.safetensors")
    again = model.load_state(tmp_path / "one.safetensors")
    next_token = arrays_of(model, 3, 1)
    assert np.array_equal(model.predict(next_token, again)["logits"], model.predict(next_token, state)["logits"])
    with pytest.raises(errors.InvalidArgumentError, match="another package"):
        other.load_state(tmp_path / "one.safetensors")
    with pytest.raises(TypeError, match="make_state"):
        model.save_state({}, tmp_path / "two")
