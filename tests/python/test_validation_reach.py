"""What a validation has to reach: residual streams without rows, copies in both orders, long texts, edited shards."""

import json
import shutil

import numpy as np
import pytest
import tiny_checkpoints
from numpy_port import Port, ported

import kvtide
from kvtide import _native  # noqa: F401  needs the extension

TOKENS = np.random.default_rng(5).integers(3, 64, 31).tolist()


class Checkpoint:
    def __init__(self, folder, arch, layers=2):
        self.config = tiny_checkpoints.config_of(arch, layers)
        self.weights = tiny_checkpoints.weights_of(self.config, 11)
        self.path = tiny_checkpoints.save(folder, self.config, self.weights)
        self.model = kvtide.Model.load(self.path)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return Checkpoint(tmp_path_factory.mktemp("reach") / "llama", "llama")


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    return Checkpoint(tmp_path_factory.mktemp("reach") / "gemma", "gemma3", 3)


def causes(report):
    return [finding.cause for finding in report.findings]


def test_a_port_that_shows_its_stream_and_no_rows_is_judged_layer_by_layer(llama):
    right = kvtide.validate(ported(llama.config, llama.weights, level="hidden"), llama.model, TOKENS, free=0)
    assert right, str(right)
    outcomes = {check.name: check.outcome for check in right.checks}
    assert outcomes["chained layers"] == "passed"
    wrong = ported(llama.config, llama.weights, "gate_and_up_swapped", "hidden", only=1)
    report = kvtide.validate(wrong, llama.model, TOKENS, free=0)
    assert not report and report.findings[0].layer == 1, str(report)


@pytest.mark.parametrize("level", ["full", "hidden", "logits"])
def test_logits_of_another_length_fail_though_their_direction_is_right(llama, level):
    report = kvtide.validate(ported(llama.config, llama.weights, "logits_times_three", level), llama.model, TOKENS, free=0)
    assert causes(report)[:1] == ["logit_scale"], str(report)


class Mirror(Port):
    """A fork that is right on one side: what the one reads gets into the other's rows."""

    def __init__(self, config, weights, copy_writes):
        super().__init__(config, weights)
        self.copy_writes = copy_writes

    def predict(self, tokens, state, inputs=None):
        result = super().predict(tokens, state, inputs)
        if (other := state.get("other")) is not None:
            for part in ("k", "v"):
                other[part] = list(state[part])
        return result

    def fork(self, state):
        copy = {**state, "k": list(state["k"]), "v": list(state["v"])}
        (copy if self.copy_writes else state)["other"] = state if self.copy_writes else copy
        return copy


@pytest.mark.parametrize("copy_writes", [False, True])
def test_a_fork_is_judged_on_both_sides(llama, copy_writes):
    report = kvtide.validate(Mirror(llama.config, llama.weights, copy_writes), llama.model, TOKENS, free=0)
    assert causes(report)[:1] == ["state_shared_between_sequences"], str(report)
    assert ("the original goes on" if copy_writes else "a copy goes on") in str(report).replace("\n", " ").replace("  ", " ")


class Far(Port):
    """Wrong where short texts and short calls do not go."""

    def __init__(self, config, weights, kind):
        super().__init__(config, weights)
        self.kind = kind

    def visible(self, n, count, total, layer):
        seen, row = super().visible(n, count, total, layer), np.arange(total)[None]
        if self.kind == "blind past 100":
            seen = seen & ((row < 100) | (row >= n))
        if self.kind == "reset at 64":
            seen = seen & ((row >= 64) | (n < 64))
        if self.kind == "calls of 40" and count == 40:
            seen = seen & (row >= n)
        if self.kind == "calls of 8" and count == 8:
            seen = seen & (row >= n)
        return seen


@pytest.mark.parametrize("kind", ["blind past 100", "reset at 64", "calls of 40", "calls of 8", ""])
def test_a_longer_text_goes_where_the_first_does_not(llama, kind):
    port = Far(llama.config, llama.weights, kind)
    short = kvtide.validate(port, llama.model, TOKENS, free=0)
    assert bool(short) == (kind != "calls of 8"), str(short)  # the mixed cut has these
    report = kvtide.validate(port, llama.model, TOKENS, free=0, length=300)
    assert bool(report) == (kind == ""), str(report)
    assert "positions 0 to 299" in report.notes["coverage"]
    assert "chained layers, 300 tokens" in [check.name for check in report.checks]


def test_windows_that_were_not_reached_are_said_and_a_longer_text_passes_them(gemma):
    short = kvtide.validate(gemma.model, tokens=TOKENS[:8], free=0)
    assert "windows of 12 are NOT reached" in short.notes["coverage"]
    assert "windows of 12 are passed" in kvtide.validate(gemma.model, tokens=TOKENS[:8], free=0, length=30).notes["coverage"]


def test_a_reference_may_be_any_model(llama, tmp_path):
    kvtide.ShardFolder.export(llama.path, tmp_path / "shards", slots=64, min_elements=1)
    shards = kvtide.ShardFolder(tmp_path / "shards")
    for reference in (llama.model, llama.path, shards, shards.path):
        assert kvtide.validate(Port(llama.config, llama.weights), reference, TOKENS, free=2, gate=0.999)
        report = kvtide.validate(shards, reference, TOKENS, free=2)
        assert report and "weights_not_compared" not in report.notes, str(report)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def edit_tensor(folder, shard, name, change):
    """Changes a tensor in its file, and the checksum in the manifest."""
    path = folder / f"{shard}.safetensors"
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + size])[name]
    dtype = {"F32": np.float32, "F16": np.float16, "I8": np.int8}[entry["dtype"]]
    begin, end = (8 + size + at for at in entry["data_offsets"])
    array = np.frombuffer(bytes(data[begin:end]), dtype).reshape(entry["shape"])
    data[begin:end] = np.ascontiguousarray(change(array), dtype).tobytes()
    path.write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    for item in manifest["shards"]:
        if item["name"] == shard:
            item["crc32c"] = f"{crc32c(data):08x}"
    (folder / "manifest.json").write_text(json.dumps(manifest))


def edit_manifest(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def shard_in(manifest, name):
    return next(shard for shard in manifest["shards"] if shard["name"] == name)


def scales_doubled(folder):
    edit_tensor(folder, "mlp.1", "down.weight_scale", lambda scale: scale * 2)


def norm_rolled(folder):
    edit_tensor(folder, "attention.0", "norm.weight", lambda weight: np.roll(weight, 1))


def value_negated(folder):
    edit_tensor(folder, "attention.1", "value.weight", lambda weight: -weight)


def layers_exchanged(folder):
    def change(manifest):
        one, two = shard_in(manifest, "mlp.0"), shard_in(manifest, "mlp.1")
        one["layer"], two["layer"] = two["layer"], one["layer"]

    edit_manifest(folder, change)


def frequencies_of_another_base(folder):
    def change(manifest):
        for rope in manifest["ropes"]:
            rope["frequencies"] = [f**1.2 for f in rope["frequencies"]]

    edit_manifest(folder, change)


def window_longer(folder):
    def change(manifest):
        for shard in manifest["shards"]:
            if shard.get("window"):
                shard["window"] += 1

    edit_manifest(folder, change)


def other_activation(folder):
    edit_manifest(folder, lambda manifest: manifest.update(activation="silu"))


def larger_epsilon(folder):
    edit_manifest(folder, lambda manifest: manifest.update(norm_epsilon=1e-3))


def other_scale_of_attention(folder):
    edit_manifest(folder, lambda manifest: manifest.update(attention_scale=0.25))


def other_end(folder):
    edit_manifest(folder, lambda manifest: manifest.update(eos=[7]))


def other_beginning(folder):
    edit_manifest(folder, lambda manifest: manifest.update(bos=5))


WEIGHTS = [scales_doubled, norm_rolled, value_negated, layers_exchanged]
NUMBERS = [frequencies_of_another_base, window_longer, other_activation, larger_epsilon, other_scale_of_attention]
ENDS = [other_end, other_beginning]


@pytest.fixture(scope="module")
def exported(gemma, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reach") / "shards"
    kvtide.ShardFolder.export(gemma.path, folder, type="int8", slots=64, min_elements=1)
    return folder


@pytest.mark.parametrize("edit", [*WEIGHTS, *NUMBERS, *ENDS], ids=lambda edit: edit.__name__)
def test_an_edited_folder_of_shards_is_not_the_model(gemma, exported, tmp_path, edit):
    folder = tmp_path / "shards"
    shutil.copytree(exported, folder)
    edit(folder)
    report = kvtide.validate(kvtide.ShardFolder(folder), gemma.path, TOKENS, free=0)
    assert not report, str(report)
    wanted = "weights_differ" if edit in WEIGHTS else "manifest_differs"
    assert wanted in causes(report), str(report)
    alone = kvtide.validate(kvtide.ShardFolder(folder), tokens=TOKENS, free=0)
    # By itself a folder can only contradict its own tokenizer, and the verdict says so.
    assert bool(alone) == (edit not in ENDS)
    assert "weights_not_compared" in alone.notes


def test_the_folder_that_nobody_edited_is(gemma, exported):
    assert kvtide.validate(kvtide.ShardFolder(exported), gemma.path, TOKENS, free=0)
