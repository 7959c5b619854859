"""Shards as Python sees them: a host of a few lines writes what a session writes; masks, states, misuse."""


import numpy as np
import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors
from together import run_together

HIDDEN = -1e4


@pytest.fixture(scope="module")
def shards(tmp_path_factory, models):
    path = tmp_path_factory.mktemp("shards") / "f16"
    kvtide.ShardFolder.export(models / "qwen2-biases.gguf", path, slots=96, head_shards=2, threads=1)
    return path


@pytest.fixture
def folder(shards):
    return kvtide.ShardFolder(shards, threads=1)


def masks(slots, position, columns, active=None, window=None):
    active = columns if active is None else active
    seen = np.full((1, 1, columns, slots), HIDDEN, np.float32)
    written = np.zeros((1, 1, slots, columns), np.float32)
    for t in range(active):
        last = position + t + 1
        seen[0, 0, t, max(0, last - (window or last)) : last] = 0
        written[0, 0, position + t, t] = 1
    return seen, written


def call(folder, shard, state, x, position, active=None):
    columns = x.shape[2]
    cos, sin = folder.rope_rows(shard.info.rope, position, columns)
    seen, written = masks(folder.slots, position, columns, active, shard.info.window)
    return shard.predict(
        {"x": x, "rope_cos": cos, "rope_sin": sin, "attention_mask": seen, "write_mask": written}, state
    )


def host_logits(folder, ids, columns):
    """The whole model, driven by nothing but the shards: float32 [positions, vocabulary]."""
    shards = {info.name: folder.open(info.name) for info in folder.shards}
    states = {name: shard.make_state() for name, shard in shards.items() if shard.kind == "attention"}
    heads = sorted((s for s in shards.values() if s.kind == "head"), key=lambda s: s.info.vocabulary.start)
    rows = []
    for at in range(0, len(ids), columns):
        chunk = ids[at : at + columns]
        x, router = shards["embedding"].predict({"ids": chunk, "first": at}), {}
        for layer in range(folder.layers):
            attention = shards[f"attention.{layer}"]
            x = call(folder, attention, states[attention.name], x, at)
            if folder.router_width:
                x, chosen = shards[f"moe.{layer}"].predict({"x": x, **router})
                router = {"router": chosen}
            else:
                x = shards[f"mlp.{layer}"].predict({"x": x})
        parts = [head.predict({"x": x}) for head in heads]
        rows.append(np.concatenate(parts, axis=1)[0, :, :, 0].T)
    return np.concatenate(rows)


def random_x(folder, columns, seed=0):
    return np.random.default_rng(seed).standard_normal((1, folder.width, columns, 1), np.float32)


def test_a_host_of_a_few_lines_comes_near_the_reference(folder, models):
    ids = np.load(models / "tiny.ids.npy")
    expected = np.load(models / "qwen2-biases.logits.npy")
    one, four = host_logits(folder, ids, 1), host_logits(folder, ids, 4)
    assert one.dtype == np.float32
    np.testing.assert_array_equal(one, four)
    np.testing.assert_allclose(one, expected, atol=2e-3 * np.abs(expected).max())
    np.testing.assert_array_equal(one.argmax(1)[-20:], expected.argmax(1)[-20:])


def test_experts_and_convolutions_travel_through_the_same_host(tmp_path, models):
    source = models.parent / "folders" / "zaya-f16"
    kvtide.ShardFolder.export(source, tmp_path / "zaya", slots=96, threads=1)
    folder = kvtide.ShardFolder(tmp_path / "zaya", threads=1)
    ids = np.load(models / "tiny.ids.npy")
    expected = np.load(source / "logits.npy")
    one, four = host_logits(folder, ids, 1), host_logits(folder, ids, 4)
    np.testing.assert_array_equal(one, four)
    np.testing.assert_allclose(one, expected, atol=2e-3 * np.abs(expected).max())
    assert folder.router_width == 8
    moe = folder.open("moe.1")
    assert (moe.kind, moe.info.layer) == ("moe", 1)
    with pytest.raises(TypeError, match="the inputs lack 'router'"):
        moe.predict({"x": random_x(folder, 2)})
    state = folder.open("attention.0").make_state()
    assert {name: array.shape for name, array in state.tensors.items()} == {
        "k_state": (1, 2, 96, 8),
        "v_state": (1, 2, 96, 8),
        "conv_state": (1, 48, 2),
        "prev_value": (1, 8),
    }


def test_a_folder_says_what_it_holds(folder, shards):
    assert repr(folder).startswith("<kvtide.ShardFolder: ")
    assert (folder.slots, folder.t_max) == (96, 4)
    assert folder.state_nbytes == folder.layers * folder.open("attention.0").make_state().nbytes
    kinds = [info.kind for info in folder.shards]
    assert kinds.count("embedding") == 1 and kinds.count("head") == 2
    assert kinds.count("attention") == kinds.count("mlp") == folder.layers
    heads = [info.vocabulary for info in folder.shards if info.kind == "head"]
    assert (heads[0].start, heads[1].stop) == (0, folder.vocabulary) and heads[0].stop == heads[1].start
    shard = kvtide.Shard.open(shards, "attention.1", threads=1)
    assert (shard.name, shard.kind, shard.info.layer, shard.info.window) == ("attention.1", "attention", 1, None)
    assert shard.nbytes > 0 and "attention.1" in repr(shard)
    cos, sin = folder.rope_rows(0, 5, 2)
    assert cos.shape == sin.shape == (2, folder.rope_half)
    np.testing.assert_allclose(cos**2 + sin**2, 1, atol=1e-6)
    assert cos[0, 0] == np.float32(np.cos(5.0))


def test_mistakes_that_only_later_tokens_show_are_refused_unless_they_are_meant(folder):
    shard = folder.open("attention.0")
    state = shard.make_state()
    call(folder, shard, state, random_x(folder, 3), 0)
    call(folder, shard, state, random_x(folder, 3), 3)
    seen, written = masks(folder.slots, 6, 1)
    alone = np.where(np.arange(folder.slots) == 6, 0, seen).astype(np.float32)
    alone[..., :6] = -1e4
    rows = dict(zip(("rope_cos", "rope_sin"), folder.rope_rows(shard.info.rope, 6, 1)))
    first = dict(zip(("rope_cos", "rope_sin"), folder.rope_rows(shard.info.rope, 0, 1)))
    inputs = {"x": random_x(folder, 1), "attention_mask": seen, "write_mask": written, **rows}
    with pytest.raises(errors.InvalidArgumentError, match="column 0 sees nothing but its own slot 6"):
        shard.predict({**inputs, "attention_mask": alone}, state)
    with pytest.raises(errors.InvalidArgumentError, match="are those of position 0. Pass the rows of position 6"):
        shard.predict({**inputs, **first}, state)
    assert state.position == 6
    shard.predict({**inputs, "attention_mask": alone, **first}, state, hides_past=True, other_positions=True)
    assert state.position == 7


def test_a_state_shows_its_arrays_where_they_lie(folder):
    shard = folder.open("attention.0")
    state = shard.make_state()
    assert (state.position, state.slots, state.shard) == (0, 96, "attention.0")
    assert list(state.tensors) == ["k_state", "v_state"]
    keys, values = state.k_state, state.v_state
    assert keys.dtype == values.dtype == np.float16
    assert keys.shape[0] == 1 and keys.shape[2] == 96
    assert not keys.any()
    call(folder, shard, state, random_x(folder, 3), 0)
    assert state.position == 3
    assert keys[0, :, :3].any(axis=-1).all() and not keys[0, :, 3:].any()
    assert keys.nbytes + values.nbytes == state.nbytes
    del state
    keys[0, 0, 0, 0] = 2  # the array keeps the state alive
    assert keys[0, 0, 0, 0] == 2


def test_hidden_slots_may_hold_anything(folder):
    shard = folder.open("attention.0")
    clean, poisoned = shard.make_state(), shard.make_state()
    for state in (clean, poisoned):
        call(folder, shard, state, random_x(folder, 4), 0)
    poisoned.k_state[0, :, 4:] = np.nan
    poisoned.v_state[0, :, 4:] = np.inf
    x = random_x(folder, 2, seed=1)
    np.testing.assert_array_equal(call(folder, shard, clean, x, 4), call(folder, shard, poisoned, x, 4))


def test_a_draft_is_taken_back(folder):
    shard = folder.open("attention.0")
    straight, drafted = shard.make_state(), shard.make_state()
    call(folder, shard, drafted, random_x(folder, 4, seed=9), 0)
    drafted.truncate(0)
    x = random_x(folder, 2, seed=1)
    np.testing.assert_array_equal(call(folder, shard, straight, x, 0), call(folder, shard, drafted, x, 0))
    with pytest.raises(errors.InvalidArgumentError, match="cannot truncate the state of attention.0 to 3"):
        drafted.truncate(3)


def test_columns_that_are_not_active_are_zeros_and_do_not_matter(folder):
    shard = folder.open("attention.0")
    x = random_x(folder, 4)
    whole, padded = shard.make_state(), shard.make_state()
    x[:, :, 2:] = np.nan
    out = call(folder, shard, padded, x, 0, active=2)
    assert padded.position == 2 and not out[:, :, 2:].any()
    np.testing.assert_array_equal(call(folder, shard, whole, x[:, :, :2], 0), out[:, :, :2])


def test_what_breaks_the_contract_is_refused_and_changes_nothing(folder):
    shard, other = folder.open("attention.0"), folder.open("attention.1")
    state = shard.make_state()
    x = random_x(folder, 2)
    call(folder, shard, state, x, 0)
    before = state.k_state.copy()
    with pytest.raises(errors.InvalidArgumentError, match="column 0 is written to slot 3; .* belongs to slot 2"):
        call(folder, shard, state, x, 3)
    with pytest.raises(errors.InvalidArgumentError, match="shard attention.1 needs one of its own"):
        call(folder, other, state, x, 2)
    with pytest.raises(errors.NumericError):
        call(folder, shard, state, np.full_like(x, np.inf), 2)
    with pytest.raises(ValueError, match=r"x must have shape \[1, \d+, T, 1\]"):
        shard.predict({"x": x[0]}, state)
    with pytest.raises(TypeError, match="the inputs lack 'rope_cos'"):
        shard.predict({"x": x}, state)
    with pytest.raises(TypeError, match="takes x, rope_cos, .*, not mask"):
        shard.predict({"x": x, "mask": 0}, state)
    with pytest.raises(TypeError, match="needs its state"):
        shard.predict({"x": x})
    with pytest.raises(TypeError, match="takes no state"):
        folder.open("mlp.0").predict({"x": x}, state)
    with pytest.raises(TypeError, match="x must hold floats"):
        folder.open("mlp.0").predict({"x": x.astype(int)})
    with pytest.raises(errors.InvalidArgumentError, match="T from 1 to 4"):
        folder.open("mlp.0").predict({"x": random_x(folder, 5)})
    with pytest.raises(errors.UnsupportedError, match="keeps no state"):
        folder.open("head.0").make_state()
    with pytest.raises(errors.InvalidArgumentError, match="there is no shard"):
        folder.open("attention.99")
    with pytest.raises(errors.InvalidArgumentError, match="outside the vocabulary"):
        folder.open("embedding").predict({"ids": [folder.vocabulary]})
    assert state.position == 2
    np.testing.assert_array_equal(state.k_state, before)


def test_inputs_of_other_float_types_and_orders_are_converted(folder):
    shard = folder.open("mlp.0")
    x = random_x(folder, 3).astype(np.float16)
    expected = shard.predict({"x": x.astype(np.float32)})
    np.testing.assert_array_equal(shard.predict({"x": x}), expected)
    fortran = np.asfortranarray(x.astype(np.float64))
    np.testing.assert_array_equal(shard.predict({"x": fortran}), expected)


def test_int8_is_exported_and_damage_is_noticed(tmp_path, models):
    path = tmp_path / "int8"
    kvtide.ShardFolder.export(models / "llama-mha-untied.gguf", path, type="int8", scales="tensor", min_elements=1)
    folder = kvtide.ShardFolder(path, threads=1)
    folder.open("mlp.0").predict({"x": random_x(folder, 1)})
    with pytest.raises(errors.InvalidArgumentError, match="is there already"):
        kvtide.ShardFolder.export(models / "llama-mha-untied.gguf", path)
    with pytest.raises(errors.InvalidArgumentError, match="type must be"):
        kvtide.ShardFolder.export(models / "llama-mha-untied.gguf", tmp_path / "other", type="int4")
    file = path / "mlp.0.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(errors.BadFormatError, match="checksum"):
        folder.open("mlp.0")
    with pytest.raises(errors.NotFoundError, match="kvtide shard export"):
        kvtide.ShardFolder(tmp_path / "nothing")


def test_two_threads_at_once_are_told_apart(folder):
    shard = folder.open("mlp.0")
    x = random_x(folder, 4)
    expected = shard.predict({"x": x})
    outcomes = []

    def work():
        for _ in range(50):
            try:
                outcomes.append(np.array_equal(shard.predict({"x": x}), expected))
            except errors.BusyError:
                outcomes.append(None)

    run_together(work, work, work, awaited="shards in three threads")
    assert len(outcomes) == 150 and False not in outcomes and True in outcomes
