"""A KV memory in Python: what it says of itself, what it refuses, and that its rows are those that were computed."""

import gc
import threading

import numpy as np
import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors
from together import join, start

SHAPE = {"layers": 3, "kv_heads": 2, "head_dim": 32}


def ramp(capacity, kinds=6, heads=2, width=32, dtype=np.float16):
    """Every row is different: kind + head / 4 + position / 512, minus twice the column."""
    kind, head, position, column = np.ogrid[:kinds, :heads, :capacity, :width]
    return (kind + head / 4 + position / 512 - 2 * column).astype(dtype)


@pytest.fixture
def filled():
    state = kvtide.State(**SHAPE, capacity=256)
    state.write("kv_cache", ramp(256), position=200, tokens=range(200))
    return state


def continued(session, text):
    """Logits of what comes next: they tell whether two memories hold the same bits."""
    return session.read_logits(text)


# What it says of itself.


def test_a_new_state_is_empty_and_tells_its_shape():
    state = kvtide.State(**SHAPE, capacity=256, key_type="f32", value_type="q8_0", slack=3)
    assert (state.position, state.rows, state.capacity, state.room, state.nbytes) == (0, 0, 256, 256, 0)
    assert (state.key_type, state.value_type, state.attention_size, state.live) == ("f32", "q8_0", None, False)
    assert state.capacity_nbytes == 3 * 2 * 256 * (32 * 4 + 34)
    assert state.layers == ((2, 32, None),) * 3 and state.layers[0].head_dim == 32
    assert state.policy == (256, None, None, 3, (None, None, None), None)
    assert list(state) == [] and len(state) == 0 and state
    assert repr(state) == "<kvtide.State: 0 tokens of 256, 0 bytes of 243.0 KiB in f32/q8_0, 3 layers>"


def test_a_policy_reads_like_a_sentence():
    state = kvtide.State(layers=[(1, 32, None), (1, 32, 16)], capacity=100, rolling=(4, 60))
    state.set_attention_size(20)
    assert str(state.policy) == (
        "keeps 4 sinks and the newest 60, up to 100 rows; 1 of 2 layers see a window only; queries see the newest 20"
    )
    assert state.policy.windows == (None, 16)


def test_the_live_state_of_a_session_follows_it(session, text):
    state = session.state
    assert state.live and state.position == 0
    count = session.read(text)
    assert state.position == state.rows == count == len(state)
    assert list(state) == list(session) == session.tokens.tolist() == state.tokens.tolist()
    assert state.capacity == session.context and state.nbytes == session.nbytes > 0
    assert repr(state).startswith(f"<kvtide.State, live: {count} tokens of 256, ")
    state.close()
    assert state.closed and not session.closed and session.position == count


def test_numbers_can_be_read_while_the_session_computes(model):
    seen = []
    with model.session(prefill_chunk=4) as session:
        state = session.state
        session.read([5] * 12, progress=lambda *_: seen.append((state.position, state.rows, repr(state), state.policy)))
    assert [numbers[0] for numbers in seen] == [4, 8, 12]


# Transitions.


def test_growing_and_shrinking_change_the_capacity_only(filled):
    before = filled.read("kv_cache", capacity=200)
    record = filled.expand(4096)
    assert (record.name, record.rows_kept, record.rows_dropped) == ("expand", 200, 0)
    assert (record.capacity_before, record.capacity_after, filled.capacity) == (256, 4096, 4096)
    assert str(record).startswith("expand: 200 rows kept, capacity 256 -> 4096 (")
    record = filled.compact(200)
    assert (record.capacity_after, filled.capacity, filled.room) == (200, 200, 0)
    np.testing.assert_array_equal(filled.read("kv_cache"), before)


def test_truncating_takes_tokens_back(filled):
    record = filled.truncate(120)
    assert (record.rows_kept, record.rows_dropped) == (120, 80)
    assert record.bytes_after < record.bytes_before and record.milliseconds >= 0
    assert filled.position == 120 and filled.tokens.tolist() == list(range(120))


def test_dropping_leaves_a_gap_that_plain_arrays_cannot_say(filled):
    record = filled.drop(10, 50)
    assert (record.rows_dropped, filled.rows, filled.position) == (40, 160, 200)
    assert filled.positions(1).tolist() == [*range(10), *range(50, 200)]
    with pytest.raises(ValueError, match="dropped or moved.*exact_only=True reads the positions from 50 on"):
        filled.read("kv_cache")
    np.testing.assert_array_equal(filled.read("kv_cache", exact_only=True)[:, :, :150], ramp(256)[:, :, 50:200])


def test_a_plan_says_what_would_happen_or_why_it_cannot(filled):
    plan = filled.plan("compact", 256)
    assert plan and plan.refusal == "" and plan.expected.rows_kept == 200
    plan = filled.plan("compact", 128)
    assert not plan and "200 are in use" in plan.refusal
    plan = filled.plan("drop", 10, 20, close_gap=True)
    assert plan.expected.rows_dropped == 10
    assert filled.rows == 200 and filled.capacity == 256


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.compact(128), "cannot compact to 128 rows: 200 are in use"),
        (lambda s: s.compact(0), "at least 1"),
        (lambda s: s.compact(257), "expand raises it"),
        (lambda s: s.expand(255), "compact lowers it"),
        (lambda s: s.expand(2**70), "at most 2\\^31"),
        (lambda s: s.truncate(201), "has read 200"),
        (lambda s: s.truncate(-1), "cannot truncate to -1"),
        (lambda s: s.drop(20, 10), "cannot drop positions 20 to 10"),
        (lambda s: s.drop(-1, 10), "cannot drop"),
        (lambda s: s.drop(190, 200, close_gap=True), "truncate takes back"),
        (lambda s: s.set_attention_size(0), "at least 1"),
        (lambda s: s.apply("expand", 1), "compact lowers it"),
        (lambda s: s.apply("shrink", 1), "no transition 'shrink'"),
        (lambda s: s.plan("grow", 1), "no transition 'grow'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason_and_changes_nothing(filled, call, words):
    before = filled.read("kv_cache").tobytes()
    with pytest.raises(errors.InvalidArgumentError, match=words):
        call(filled)
    assert (filled.position, filled.capacity, filled.attention_size) == (200, 256, None)
    assert filled.read("kv_cache").tobytes() == before


def test_a_session_resized_in_mid_text_goes_on_with_the_same_bits(model, text):
    ids = model.tokenizer.encode(text)[:120]
    with model.session() as one, model.session() as other:
        expected = one.read_logits(ids)
        first = other.read_logits(ids[:50])
        other.state.compact(50)
        with pytest.raises(errors.ContextFullError):
            other.read(ids[50:])
        other.apply("expand", 64)
        middle = other.read_logits(ids[50:60])
        assert other.plan("expand", 500) and other.context == 64
        other.state.expand(500)
        np.testing.assert_array_equal(np.concatenate([first, middle, other.read_logits(ids[60:])]), expected)
        assert other.context == 500


def test_a_generation_goes_on_over_a_resize_and_not_over_a_truncation(session):
    generation = session.generate("ab", max_tokens=6)
    next(generation)
    session.state.expand(1000)
    next(generation)
    session.state.truncate(1)
    with pytest.raises(errors.BusyError):
        next(generation)
    with pytest.raises(errors.InvalidArgumentError, match="taken back"):
        session.logits
    with pytest.raises(errors.InvalidArgumentError, match="taken back"):
        session.complete()
    session.read("b")
    assert session.complete(max_tokens=2).reason == "max_tokens"


def test_the_attention_size_changes_between_two_tokens(model, text):
    ids = model.tokenizer.encode(text)[:90]
    with model.session() as one, model.session(attention_size=16) as other:
        assert other.attention_size == other.state.attention_size == 16
        one.read(ids[:30])
        other.read(ids[:30])
        one.state.set_attention_size(16)
        other.clear()
        other.state.set_attention_size(None)
        other.read(ids[:30])
        other.state.set_attention_size(16)
        np.testing.assert_array_equal(one.read_logits(ids[30:]), other.read_logits(ids[30:]))
        assert one.attention_size == 16 and "newest 16" in repr(one.state)


def test_a_rolling_session_never_fills_up(model):
    with model.session(context=64, rolling=(4, 40)) as session:
        session.read([5, 9] * 100)
        assert session.position == 200 and session.state.rows == 44
        assert "200 tokens (44 held) of 64" in repr(session.state)
        assert session.complete(max_tokens=5).reason in ("max_tokens", "end_of_text")
        assert len(list(session.generate(max_tokens=70))) > 0


# Forks.


def test_a_forked_session_reads_on_by_itself(model, text):
    ids = model.tokenizer.encode(text)[:100]
    with model.session() as session, model.session() as other:
        session.read(ids[:70])
        fork = session.fork()
        assert fork.position == 70 and list(fork) == ids[:70] and fork.model is model
        np.testing.assert_array_equal(fork.logits, session.logits)
        assert session.state.shared_nbytes > 0
        fork.read([5] * 20)
        np.testing.assert_array_equal(session.read_logits(ids[70:]), other.read_logits(ids)[70:])
        fork.close()


def test_a_forked_state_is_on_its_own(filled):
    fork = filled.fork()
    assert fork.shared_nbytes == fork.nbytes and not fork.live
    fork.truncate(10)
    filled.close()
    np.testing.assert_array_equal(fork.read("kv_cache", capacity=10), ramp(10))
    assert fork.tokens.tolist() == list(range(10))


def test_a_session_goes_on_from_a_state_that_was_kept(model, text):
    ids = model.tokenizer.encode(text)[:100]
    with model.session() as session, model.session() as other:
        session.read(ids[:60])
        kept = session.state.fork()
        expected = session.read_logits(ids[60:])
        other.read([7, 7])
        for target in (session, other):
            target.restore(kept)
            assert list(target) == ids[:60] == list(kept)
            np.testing.assert_array_equal(target.read_logits(ids[60:]), expected)
        session.restore(session.state)
        assert session.position == len(ids)


# Arrays.


def test_keys_and_values_look_into_the_memory_without_a_copy(filled):
    for layer in range(3):
        keys, values = filled.keys(layer, copy=False), filled.values(layer, copy=False)
        assert keys.shape == values.shape == (2, 200, 32) and keys.dtype == np.float16
        assert not keys.flags.writeable and not keys.flags.owndata
        np.testing.assert_array_equal(keys, ramp(256)[layer, :, :200])
        np.testing.assert_array_equal(values, ramp(256)[3 + layer, :, :200])
        assert keys.ctypes.data == filled.keys(layer).ctypes.data != filled.keys(layer, copy=True).ctypes.data
        with pytest.raises(ValueError):
            keys[0] = 1
        with pytest.raises(ValueError):
            keys.flags.writeable = True
        assert memoryview(keys).readonly
        np.testing.assert_array_equal(np.from_dlpack(keys), keys)


def test_an_array_stays_what_it_was_while_its_session_reads_on(model, text):
    with model.session() as session:
        session.read(text[:60])
        keys = session.state.keys(1)
        kept = keys.copy()
        assert session.state.views == 1 and "1 array looks into it" in repr(session.state)
        session.read(text[60:120])
        session.state.expand(10000)
        session.state.compact(session.position)
        session.state.set_attention_size(8)
        assert session.state.keys(1).shape[1] == session.position > keys.shape[1]
        np.testing.assert_array_equal(keys, kept)
        np.testing.assert_array_equal(session.state.keys(1)[:, : keys.shape[1]], kept)
    # Closing keeps what is looked at.
    np.testing.assert_array_equal(keys, kept)


def test_an_array_of_a_window_stays_when_the_window_has_moved_on(model):
    with model.session(context=64, rolling=(4, 40), prefill_chunk=16) as session:
        session.read([5, 9] * 20)
        keys = session.state.values(0)
        kept = keys.copy()
        for _ in range(10):
            session.read([6, 11] * 100)
        assert kept.any()
        np.testing.assert_array_equal(keys, kept)


TAKING = {
    "truncate": lambda s: s.state.truncate(10),
    "truncate by one": lambda s: s.state.truncate(s.position - 1),
    "drop": lambda s: s.state.drop(5, 6),
    "drop closing the gap": lambda s: s.state.drop(5, 6, close_gap=True),
    "apply": lambda s: s.apply("truncate", 0),
    "clear": lambda s: s.clear(),
    "load": lambda s: s.load("whatever.kv"),
    "restore": lambda s: s.restore(s.state.fork()),
    "write": lambda s: s.state.write(s.state.arrays()),
}


@pytest.mark.parametrize("take", TAKING.values(), ids=TAKING)
def test_what_would_take_rows_from_under_an_array_is_a_buffer_error(session, text, take):
    count = session.read(text[:40])
    keys = session.state.keys(0)
    kept = keys.copy()
    with pytest.raises(BufferError, match="1 array shows rows that would go") as caught:
        take(session)
    assert isinstance(caught.value, errors.ViewedError) and isinstance(caught.value, kvtide.Error)
    assert session.position == count
    np.testing.assert_array_equal(keys, kept)
    session.read("a")
    del keys
    if take is not TAKING["load"]:
        take(session)


def test_rows_outside_an_array_may_be_taken_back(session, text):
    session.read(text[:40])
    count = session.position
    keys = session.state.keys(0)
    session.read(text[40:80])
    session.state.truncate(count)
    assert session.position == count and keys.shape[1] == count


def test_slices_and_other_owners_keep_an_array_alive(filled):
    part = filled.keys(0)[1:, 5:9].T
    gc.collect()
    assert filled.views == 1
    with pytest.raises(BufferError):
        filled.truncate(100)
    del part
    assert filled.views == 0
    filled.truncate(100)


def test_rows_in_pieces_are_copied_or_refused(filled):
    filled.drop(64, 128)
    keys = filled.keys(0)
    np.testing.assert_array_equal(keys, np.delete(ramp(256)[0, :, :200], np.s_[64:128], axis=1))
    assert filled.views == 0 and not keys.flags.writeable
    with pytest.raises(ValueError, match="2 pieces"):
        filled.keys(0, copy=False)


def test_rows_in_q8_0_come_as_copies_in_float32():
    state = kvtide.State(**SHAPE, capacity=64, key_type="q8_0", value_type="f32")
    rows = ramp(64, dtype=np.float32)
    state.write("kv_cache", rows, position=64)
    assert state.keys(0).dtype == np.float32 and state.read("kv_cache").dtype == np.float32
    # A step of q8_0 is the largest number of a block divided by 127, itself rounded to 11 bits.
    assert np.abs(state.keys(0) - rows[0]).max() <= np.abs(rows[0]).max() * (1 / 254 + 2**-11)
    np.testing.assert_array_equal(state.values(2), rows[5])
    with pytest.raises(ValueError, match="q8_0"):
        state.keys(0, copy=False)


def test_an_empty_state_has_empty_arrays():
    state = kvtide.State(**SHAPE, capacity=8)
    assert state.keys(0).shape == (2, 0, 32) and not state.read("kv_cache").any()
    assert state.positions(0).size == 0


# Named layouts.


def test_every_layout_holds_the_same_rows(filled):
    rows = ramp(256)
    rows[:, :, 200:] = 0
    np.testing.assert_array_equal(filled.read("kv_cache"), rows)
    assert set(filled.arrays("split")) == {"kv_cache_global"}
    np.testing.assert_array_equal(filled.read("kv_cache_global"), rows)
    stacked = filled.arrays("stacked", capacity=300)
    assert stacked["keyCache"].shape == (3, 1, 2, 300, 32) and stacked["pastLen"].tolist() == [200]
    np.testing.assert_array_equal(stacked["valueCache"][:, 0, :, :256], rows[3:])
    per_layer = filled.arrays("per-layer")
    assert list(per_layer)[:3] == ["layers.0.k_state", "layers.0.v_state", "layers.1.k_state"]
    np.testing.assert_array_equal(per_layer["layers.2.v_state"][0], rows[5])
    assert set(filled.names) == {"kv_cache", "kv_cache_global", *stacked, *per_layer}
    assert filled.read("kv_cache", dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("layout", ["unified", "split", "per-layer", "stacked"])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_a_layout_written_into_another_state_is_the_same_state(layout, kind):
    dtype = {"f16": np.float16, "f32": np.float32}[kind]
    one = kvtide.State(**SHAPE, capacity=100, key_type=kind)
    one.write("kv_cache", ramp(80, dtype=dtype), position=77)
    other = kvtide.State(**SHAPE, capacity=50, key_type=kind)
    other.write(one.arrays(layout), position=77)
    assert other.position == 77 and other.capacity == 77
    np.testing.assert_array_equal(other.read("kv_cache", capacity=100), one.read("kv_cache"))


def test_a_single_layer_goes_by_short_names():
    state = kvtide.State(layers=1, kv_heads=2, head_dim=32, capacity=16)
    rows = ramp(16, kinds=2)
    state.write({"k_cache": rows[:1], "v_cache": rows[1:]}, position=9)
    np.testing.assert_array_equal(state.read("v_cache")[0, :, :9], rows[1, :, :9])
    np.testing.assert_array_equal(state.read("k_cache"), state.read("layers.0.k_state"))


def test_layers_with_a_window_are_an_array_of_their_own():
    shape = {"layers": [(1, 32, 8), (1, 32, None), (1, 32, 8)]}
    state = kvtide.State(**shape, capacity=32)
    state.write("kv_cache", ramp(32, heads=1), position=20)
    split = state.arrays("split")
    assert split["kv_cache_local"].shape == (4, 1, 8, 32) and split["kv_cache_global"].shape == (2, 1, 32, 32)
    np.testing.assert_array_equal(split["kv_cache_local"], ramp(32, heads=1)[[0, 2, 3, 5], :, 12:20])
    other = kvtide.State(**shape, capacity=32)
    other.write(split, position=20)
    np.testing.assert_array_equal(other.read("kv_cache_local"), split["kv_cache_local"])
    with pytest.raises(ValueError, match="the layout 'split' has such layers apart"):
        other.read("kv_cache")


def test_past_length_says_how_many_rows_are_in_use(filled):
    arrays = filled.arrays("stacked")
    other = kvtide.State(**SHAPE, capacity=256)
    other.write(arrays)
    assert other.position == 200
    other.write({**arrays, "pastLen": np.array([7], np.int64)})
    assert other.position == 7 and other.tokens.size == 0


def test_a_session_goes_on_from_rows_that_came_as_arrays(model, text):
    ids = model.tokenizer.encode(text)[:100]
    for layout in ("unified", "per-layer", "stacked"):
        with model.session() as session, model.session() as other:
            session.read(ids[:60])
            other.state.write(session.state.arrays(layout), position=60, tokens=ids[:60])
            assert list(other) == ids[:60]
            np.testing.assert_array_equal(other.read_logits(ids[60:]), session.read_logits(ids[60:]))


WRITES = [
    ({"arrays": "kv_cache", "value": ramp(200)[:, :, :199], "position": 200}, ValueError, r"at least 200, 32\], not"),
    ({"arrays": "kv_cache", "value": ramp(256, kinds=4)}, ValueError, "must be"),
    ({"arrays": "kv_cache", "value": ramp(256, heads=1)}, ValueError, "must be"),
    ({"arrays": "kv_cache", "value": ramp(256).astype(np.float64)}, TypeError, "float16 or float32, not float64"),
    ({"arrays": "kv_cache", "value": ramp(256).astype(np.int8)}, TypeError, "not int8"),
    ({"arrays": "kv_cache", "value": ramp(256)[0]}, ValueError, "must be"),
    ({"arrays": "kv_cache", "value": ramp(256) * np.float16(np.nan)}, errors.NumericError, "NaN"),
    ({"arrays": "kv_cache", "value": np.full((6, 2, 256, 32), 1e6, np.float32)}, errors.NumericError, "beyond"),
    ({"arrays": "kv_cache", "value": None}, TypeError, "NumPy array"),
    ({"arrays": "kv_cache", "value": [[1]]}, TypeError, "NumPy array"),
    ({"arrays": "kv", "value": ramp(256)}, ValueError, "no array 'kv'"),
    ({"arrays": "kv_cache_local", "value": ramp(256)}, ValueError, "no array"),
    ({"arrays": "k_cache", "value": ramp(256)[:1]}, ValueError, "no array"),
    ({"arrays": {"keyCache": ramp(256)[:3, None]}}, ValueError, "lacks valueCache"),
    ({"arrays": {"kv_cache": ramp(256), "keyCache": ramp(256)}}, ValueError, "does not have keyCache"),
    ({"arrays": {}}, ValueError, "no arrays"),
    ({"arrays": [ramp(256)]}, TypeError, "dictionary"),
    ({"arrays": {"kv_cache": ramp(256)}, "value": ramp(256)}, TypeError, "dictionary"),
    ({"arrays": {5: ramp(256)}}, TypeError, "must be a str"),
    ({"arrays": "kv_cache", "value": ramp(256), "position": -1}, ValueError, "position"),
    ({"arrays": "kv_cache", "value": ramp(256), "position": 1.5}, TypeError, "position"),
    ({"arrays": "kv_cache", "value": ramp(256), "position": 257}, ValueError, "at least 257"),
    ({"arrays": "kv_cache", "value": ramp(256), "tokens": [1, 2]}, ValueError, "2 tokens do not fill 200"),
    ({"arrays": "kv_cache", "value": ramp(256), "tokens": [-1] * 200}, ValueError, "negative"),
    ({"arrays": "kv_cache", "value": ramp(256), "tokens": "abc"}, TypeError, "tokens"),
]


@pytest.mark.parametrize(("given", "error", "words"), WRITES)
def test_arrays_that_do_not_fit_are_refused_and_change_nothing(filled, given, error, words):
    before = filled.read("kv_cache").tobytes()
    with pytest.raises(error, match=words):
        filled.write(**given)
    assert filled.position == 200 and filled.read("kv_cache").tobytes() == before


def test_what_lies_behind_the_rows_in_use_is_never_read(filled):
    rows = ramp(256)
    rows[:, :, 50:] = np.nan
    filled.write("kv_cache", rows, position=50)
    assert np.isfinite(filled.read("kv_cache")).all()


# Snapshots.


def test_a_state_saved_and_loaded_is_the_same(filled, tmp_path):
    path = tmp_path / "state.kv"
    filled.set_attention_size(33)
    filled.save(path)
    with kvtide.State.load(path) as loaded:
        assert (loaded.position, loaded.capacity, loaded.attention_size) == (200, 256, 33)
        assert list(loaded) == list(range(200)) and loaded.identity == {}
        np.testing.assert_array_equal(loaded.read("kv_cache"), filled.read("kv_cache"))
    assert loaded.closed


@pytest.mark.parametrize("through", ["session", "state", "fork"])
def test_a_session_saved_and_loaded_goes_on_with_the_same_bits(model, text, tmp_path, through):
    ids = model.tokenizer.encode(text)[:100]
    path = tmp_path / "book.kv"
    with model.session() as session, model.session() as other:
        session.read(ids[:60])
        {"session": session, "state": session.state, "fork": session.state.fork()}[through].save(path, cache=tmp_path)
        expected = session.read_logits(ids[60:])
        other.load(path, cache=tmp_path)
        np.testing.assert_array_equal(other.read_logits(ids[60:]), expected)
        loaded = kvtide.State.load(path)
        assert set(loaded.identity) == {"architecture", "model", "tokenizer"} and list(loaded) == ids[:60]
        other.restore(loaded)
        np.testing.assert_array_equal(other.read_logits(ids[60:]), expected)


def test_a_snapshot_of_another_model_and_a_damaged_one_are_refused(model, models, text, tmp_path):
    path = tmp_path / "book.kv"
    with model.session() as session:
        session.read(text[:60])
        session.save(path)
        before = session.logits
        with kvtide.Model.load(models / "llama-rope-linear.gguf") as other, other.session() as stranger:
            with pytest.raises(errors.InvalidArgumentError):
                stranger.load(path)
            with pytest.raises(errors.InvalidArgumentError, match="another model"):
                stranger.restore(kvtide.State.load(path))
            with pytest.raises(errors.InvalidArgumentError, match="another model"):
                stranger.restore(session.state)
            assert stranger.position == 0
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[:100], b"", whole[:5000] + b"\xff" + whole[5001:]):
            path.write_bytes(damaged)
            with pytest.raises(errors.BadFormatError, match="book.kv"):
                kvtide.State.load(path)
            with pytest.raises(errors.BadFormatError, match="book.kv"):
                session.load(path)
        np.testing.assert_array_equal(session.logits, before)


# The GIL.


def test_other_threads_run_while_a_snapshot_is_written_and_read(tmp_path):
    state = kvtide.State(layers=8, kv_heads=4, head_dim=128, capacity=8192)
    state.write("kv_cache", np.ones((16, 4, 8192, 128), np.float16), position=8192)
    path = tmp_path / "large.kv"
    for work in (lambda: state.save(path), lambda: kvtide.State.load(path)):
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1

        thread = start(count)
        before = counted[0]
        work()
        after = counted[0]
        done.set()
        join(thread, "a thread that counts")
        # Had the call kept the GIL, the other thread could not have come by but at its very edges.
        assert after - before > 10_000
