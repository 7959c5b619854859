"""Reading: logits, scores, progress, memory."""

import threading

import numpy as np
import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors
from together import join, run_together, start


def test_text_and_ids_are_the_same_reading(model, text):
    ids = model.tokenizer.encode(text)
    results = []
    for given in (text, ids, tuple(ids), np.array(ids), np.array(ids, np.uint8), np.array(ids)[::-1][::-1], iter(ids)):
        with model.session() as session:
            assert session.read(given) == len(ids) == session.position == len(session)
            results.append(session.logits)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_a_text_that_goes_on_gets_nothing_in_front(model, text):
    with model.session() as session:
        assert session.read(text[:20]) + session.read(text[20:]) == session.position
        assert session.read("") == 0


def test_logits_are_a_copy_that_stays(session, text):
    session.read(text)
    first = session.logits
    kept = first.copy()
    assert first.shape == (64,) and first.dtype == np.float32 and first.flags.writeable
    session.read("and")
    assert not np.array_equal(session.logits, kept)
    session.clear()
    session.close()
    np.testing.assert_array_equal(first, kept)


def test_read_logits_gives_a_row_for_every_token(session, text):
    rows = session.read_logits(text)
    assert rows.shape == (session.position, 64)
    np.testing.assert_array_equal(rows[-1], session.logits)
    assert session.read_logits([]).shape == (0, 64)


def log_softmax(rows):
    rows = rows.astype(np.float64)
    return rows - np.log(np.exp(rows - rows.max(-1, keepdims=True)).sum(-1, keepdims=True)) - rows.max(-1, keepdims=True)


def test_scores_are_log_probabilities_of_what_was_read(model, text):
    ids = model.tokenizer.encode(text)
    with model.session() as session, model.session() as other:
        expected = log_softmax(session.read_logits(ids))
        whole = other.score(ids)
        assert np.isnan(whole[0])
        np.testing.assert_allclose(whole[1:], expected[np.arange(len(ids) - 1), ids[1:]], rtol=1e-12)
        other.clear()
        parts = np.concatenate([other.score(ids[:30]), other.score([]), other.score(ids[30:])])
        np.testing.assert_array_equal(parts, whole)
        np.testing.assert_allclose(other.log_probabilities(), expected[-1], rtol=1e-12)
        assert np.exp(other.log_probabilities()).sum() == pytest.approx(1)


def test_progress_hears_of_every_chunk(model, text):
    heard = []
    with model.session(prefill_chunk=16) as session:
        count = session.read(text, progress=lambda done, total: heard.append((done, total)))
        assert [done for done, _ in heard] == [*range(16, count, 16), count]
        assert {total for _, total in heard} == {count}
        # Any other answer than False goes on.
        session.clear()
        assert session.read(text, progress=lambda *_: 0) == count


@pytest.mark.parametrize("call", ["read", "read_logits", "score"])
def test_progress_that_says_false_stops_the_reading(model, text, call):
    with model.session(prefill_chunk=16) as session:
        with pytest.raises(errors.CancelledError, match="stopped after 32 of"):
            getattr(session, call)(text, progress=lambda done, _: done < 32)
        assert session.position == 32
        assert session.read("a") == 1 and session.logits.shape == (64,)


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), SystemExit(3), MemoryError()])
def test_an_exception_in_a_callback_comes_out_and_the_session_goes_on(model, text, error):
    def fail(done, total):
        raise error

    with model.session(prefill_chunk=16) as session:
        with pytest.raises(type(error)) as caught:
            session.read(text, progress=fail)
        assert caught.value is error
        assert session.position == 16 and not session.busy
        session.read(model.tokenizer.encode(text)[16:])
        other = model.session()
        other.read(text)
        np.testing.assert_array_equal(session.logits, other.logits)


def test_cancel_from_another_thread_stops_at_the_next_chunk(model, text):
    with model.session(prefill_chunk=8) as session:

        def cancel(done, total):
            if done == 16:
                run_together(session.cancel)

        with pytest.raises(errors.CancelledError):
            session.read(text, progress=cancel)
        assert session.position == 16
        session.cancel()  # nothing runs: no effect on what comes later
        assert session.read("a") == 1


def test_a_full_context_is_refused_before_anything_is_read(model, text):
    with model.session(context=40) as session:
        with pytest.raises(errors.ContextFullError, match="0 of 40"):
            session.read(text)
        assert session.position == 0
        session.read([5] * 40)
        with pytest.raises(errors.ContextFullError):
            session.read([5])
        assert session.position == session.context == 40


def test_options_are_told_with_the_defaults_filled_in(model):
    with model.session(threads=2, prefill_chunk=32, key_type="f32", exact=True) as session:
        assert session.options == {
            "context": 256,
            "exact": True,
            "key_type": "f32",
            "value_type": "f16",
            "threads": 2,
            "prefill_chunk": 32,
            "rolling": None,
            "attention_size": None,
            "slack": 0,
            "checkpoint_every": 0,
            "checkpoint_budget": 64 * 2**20,
        }


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 3}, {"prefill_chunk": 1}, {"prefill_chunk": 7}, {"kernels": "scalar"}])
def test_options_of_speed_change_no_bit_of_the_logits(model, text, options):
    with model.session() as plain, model.session(**options) as other:
        plain.read(text)
        other.read(text)
        np.testing.assert_array_equal(plain.logits, other.logits)


def test_memory_is_told_in_bytes_and_given_back(model, text):
    with model.session() as session:
        assert session.memory.kv == session.nbytes == 0
        session.read(text)
        memory = session.memory
        assert memory.weights == model.nbytes and memory.kv == session.nbytes > 0 and memory.scratch > 0
        session.clear()
        assert session.nbytes == 0 and session.position == 0


def test_a_session_shows_tokens_and_bytes(model, text):
    session = model.session(context=128, value_type="f32")
    assert repr(session) == "<kvtide.Session on 'llama-mha-untied': 0 of 128 tokens, 0 bytes of KV memory in f16/f32>"
    session.read([4] * 10)
    assert "10 of 128 tokens" in repr(session) and "KiB of KV memory" in repr(session)
    session.close()
    assert repr(session) == "<kvtide.Session on 'llama-mha-untied', closed>"
    with model.session(rolling=(4, 60)) as rolling:
        rolling.read([4] * 100)
        assert repr(rolling).startswith("<kvtide.Session on 'llama-mha-untied': 100 tokens, the first 4 and the newest 60 held, ")


def test_a_memory_with_a_budget_says_the_budget_and_no_length(model, tmp_path):
    with model.session(kv_budget="1M") as session, model.session() as other:
        session.read([4] * 10)
        assert "10 tokens, " in repr(session) and "of KV memory, at most 1.0 MiB, in f16" in repr(session)
        assert " of 256" not in repr(session)
        assert (session.state.budget, other.state.budget, other.state.policy.budget) == (2**20, None, None)
        assert str(session.state.policy).startswith("keeps old tokens as summaries and exact outliers, in at most 1.0 MiB")
        assert "of at most 1.0 MiB in f16" in repr(session.state) and " of 256" not in repr(session.state)
        session.save(tmp_path / "book.kv")
        other.load(tmp_path / "book.kv")
        assert repr(other) == repr(session) and other.state.budget == kvtide.State.load(tmp_path / "book.kv").budget == 2**20
    with model.session(procedural={"window": 48, "block": 16}) as session:
        session.read([4] * 10)
        assert session.state.budget == 0 and "at most" not in repr(session) and " of 256" not in repr(session)
    assert session.model is model


def test_sessions_of_one_model_work_side_by_side_and_alike(model, text):
    results = [None] * 4

    def work(i):
        with model.session(threads=1) as session:
            for _ in range(20):
                session.clear()
                session.read(text)
            results[i] = session.logits

    run_together(*(lambda i=i: work(i) for i in range(4)), awaited="sessions side by side")
    for result in results:
        np.testing.assert_array_equal(result, results[0])


def test_the_gil_is_free_while_a_session_reads(model):
    """Another thread gets to run Python between the start and the end of one chunk."""
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.wait(0):
            ticks.append(session.busy)

    with model.session(prefill_chunk=256, threads=1) as session:
        thread = start(tick)
        for _ in range(200):
            session.clear()
            session.read([5] * 256)
            if True in ticks:
                break
        stop.set()
        join(thread, "a thread that runs Python")
    assert True in ticks


def test_an_empty_session_is_true(session):
    assert session and len(session) == 0
