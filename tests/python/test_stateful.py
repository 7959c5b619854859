"""GPT-2 driven as an exported model is: ids and a mask in, logits out, keyCache, valueCache and pastLen as arrays."""

import numpy as np
import pytest
import tiny_checkpoints

import kvtide
from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors


@pytest.fixture(scope="module")
def folder(models):
    return models.parent / "folders" / "gpt2-f32"


@pytest.fixture(scope="module")
def gpt2(folder):
    with kvtide.Model.load(folder) as model:
        yield model


@pytest.fixture
def stateful(gpt2):
    return kvtide.StatefulModel(gpt2, exact=True, key_type="f32", value_type="f32", threads=1)


@pytest.fixture(scope="module")
def ids(models):
    return np.load(models / "tiny.ids.npy")


def ones(n):
    return np.ones(n, np.int32)


def test_the_prompt_once_and_then_one_token_a_call_give_the_reference_logits(stateful, folder, ids):
    expected = np.load(folder / "logits.npy")
    np.testing.assert_allclose(stateful.predict(ids[None, :11], ones(11)[None]), expected[10], atol=2e-4)
    for n in range(11, len(ids)):
        logits = stateful.predict([ids[n]], ones(stateful.past_length + 1))
        assert logits.dtype == np.float32 and logits.shape == (64,)
        np.testing.assert_allclose(logits, expected[n], atol=2e-4)
    assert stateful.past_length == len(ids)


def test_a_mask_of_another_length_is_refused_with_the_reason_and_changes_nothing(stateful, ids):
    stateful.predict(ids[:5], ones(5))
    before = stateful.state()
    with pytest.raises(errors.InvalidArgumentError, match="has length 1, but 6 tokens are active.*would hide the state"):
        stateful.predict([ids[5]], ones(1))
    with pytest.raises(errors.InvalidArgumentError, match="has length 7, but 6"):
        stateful.predict([ids[5]], ones(7))
    padded = ones(6)
    padded[2] = 0
    with pytest.raises(errors.InvalidArgumentError, match="0 at position 2"):
        stateful.predict([ids[5]], padded)
    with pytest.raises(errors.InvalidArgumentError, match="at least one token"):
        stateful.predict([], ones(5))
    with pytest.raises(ValueError, match=r"input_ids must have shape \[1, n\] or \[n\], not \[2, 3\]"):
        stateful.predict(ids[:6].reshape(2, 3), ones(11))
    with pytest.raises(TypeError, match="integers"):
        stateful.predict([0.5], ones(6))
    assert stateful.past_length == 5
    after = stateful.state()
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_masks_of_floats_and_bools_are_taken(gpt2, stateful, ids):
    other = kvtide.StatefulModel(gpt2, exact=True, key_type="f32", value_type="f32", threads=1)
    expected = stateful.predict(ids[:7], ones(7))
    np.testing.assert_array_equal(other.predict(ids[:7], np.ones(7, bool)), expected)
    other.reset()
    np.testing.assert_array_equal(other.predict(ids[:7], np.ones((1, 7), np.float32)), expected)


def test_the_state_is_three_arrays_with_zeros_where_nobody_wrote(stateful, ids):
    stateful.predict(ids[:5], ones(5))
    state = stateful.state()
    assert {name: (array.shape, array.dtype) for name, array in state.items()} == {
        "keyCache": ((2, 1, 4, 256, 8), np.float32),
        "valueCache": ((2, 1, 4, 256, 8), np.float32),
        "pastLen": ((1,), np.int32),
    }
    assert state["pastLen"][0] == 5
    for name in ("keyCache", "valueCache"):
        assert state[name][:, :, :, :5].any(axis=-1).all() and not state[name][:, :, :, 5:].any()


@pytest.mark.parametrize("kind, dtype", [("f32", np.float32), ("f16", np.float16)])
def test_a_state_carried_away_and_back_goes_on_with_the_same_bits(gpt2, ids, kind, dtype):
    def make():
        return kvtide.StatefulModel(gpt2, key_type=kind, value_type=kind, threads=1)

    one, other = make(), make()
    one.predict(ids[:20], ones(20))
    state = one.state()
    assert state["keyCache"].dtype == dtype
    short = {name: array[:, :, :, :20] if array.ndim == 5 else array for name, array in state.items()}
    for arrays in (state, short):
        other.set_state(arrays, ids[:20])
        assert other.past_length == 20
        np.testing.assert_array_equal(other.state()["valueCache"], state["valueCache"])
    np.testing.assert_array_equal(other.predict([ids[20]], ones(21)), one.predict([ids[20]], ones(21)))


def test_the_state_of_another_model_of_the_same_shape_is_refused(tmp_path):
    config = tiny_checkpoints.config_of("gpt2", 2)
    paths = [tiny_checkpoints.save(tmp_path / str(s), config, tiny_checkpoints.weights_of(config, s)) for s in (1, 2)]
    mine, theirs = (kvtide.StatefulModel(kvtide.Model.load(path), context=16) for path in paths)
    mine.predict([5, 6, 7], ones(3))
    state = mine.state()
    assert len(state.model) == 64
    with pytest.raises(errors.InvalidArgumentError, match="the state belongs to another model"):
        theirs.set_state(state, [5, 6, 7])
    assert theirs.past_length == 0
    mine.set_state(state, [5, 6, 7])
    theirs.set_state(dict(state), [5, 6, 7])  # a plain dict says nothing of its model


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(stateful, ids):
    stateful.predict(ids[:5], ones(5))
    state = stateful.state()
    keys = state["keyCache"]
    for broken, says in [
        ({**state, "keyCache": keys[:1]}, r"keyCache must be \[2, 1, 4, rows, 8\], not \[1, 1, 4, 256, 8\]"),
        ({**state, "valueCache": keys[:, :, :, :9]}, r"valueCache must be \[2, 1, 4, 256, 8\], not"),
        ({**state, "pastLen": np.array([0.5])}, "one whole number"),
        ({**state, "pastLen": np.array([300])}, "300"),
        ({"keyCache": keys}, "must hold keyCache, valueCache, pastLen, not keyCache"),
        ({**state, "keyCache": keys + np.nan}, "NaN"),
    ]:
        with pytest.raises(errors.InvalidArgumentError, match=says):
            stateful.set_state(broken, ids[:5])
    with pytest.raises(errors.InvalidArgumentError, match="has read 5 tokens, but 3 are given"):
        stateful.set_state(state, ids[:3])
    with pytest.raises(TypeError, match="float16 or float32, not float64"):
        stateful.set_state({**state, "keyCache": keys.astype(float)}, ids[:5])
    assert stateful.past_length == 5
    np.testing.assert_array_equal(stateful.state()["keyCache"], keys)


def test_positions_beyond_those_that_were_learned_are_refused(stateful):
    ids = np.arange(257) % 60
    stateful.predict(ids[:256], ones(256))
    with pytest.raises(errors.ContextFullError, match="has learned 256 positions"):
        stateful.predict(ids[256:], ones(257))
    assert stateful.past_length == 256
    stateful.reset()
    assert stateful.past_length == 0 and stateful.state()["pastLen"][0] == 0


def test_models_whose_state_is_more_than_two_caches_are_refused(models):
    for name, says in [("zaya-i8", "carry more than rows"), ("gemma3-f32", "sliding windows")]:
        with kvtide.Model.load(models.parent / "folders" / name) as model:
            with pytest.raises(errors.InvalidArgumentError, match=says):
                kvtide.StatefulModel(model)
    with pytest.raises(TypeError, match="kvtide.Model"):
        kvtide.StatefulModel("gpt2")
