"""Batch: several sessions in one pass, each with the bits that it would have alone."""

import numpy as np
import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors
from together import run_together


def test_sessions_write_together_what_each_writes_alone(model, text):
    ids = model.tokenizer.encode(text)
    kinds = [{}, {"rolling": (2, 30)}, {"attention_size": 9}, {"threads": 1, "prefill_chunk": 7}]
    wanted = []
    for i, kind in enumerate(kinds):
        with model.session(context=200, **kind) as session:
            wanted.append(session.read_logits(ids[i : i + 40]))
    with model.batch(threads=2, max_step=64) as batch:
        assert (batch.threads, batch.max_step) == (2, 64)
        sessions = [model.session(context=200, **kind) for kind in kinds]
        outcomes = batch.step((session, ids[i : i + 10]) for i, session in enumerate(sessions))
        assert [outcome.read for outcome in outcomes] == [10, 10, 10, 7]  # its prefill_chunk
        assert all(outcome.error is None for outcome in outcomes)
        outcomes = batch.step([(sessions[3], ids[10:13])], need_logits=False)
        for done in range(10, 40):
            batch.step((session, [ids[i + done]]) for i, session in enumerate(sessions))
            for i, session in enumerate(sessions):
                assert session.position == done + 1
                np.testing.assert_array_equal(session.logits, wanted[i][done])


def test_what_one_session_cannot_do_stops_no_other(model, text):
    ids = model.tokenizer.encode(text)
    with model.batch() as batch, model.session(context=8) as small, model.session() as good:
        small.read(ids[:8])
        full, read = batch.step([(small, ids[8:9]), (good, ids[:5])])
        assert isinstance(full.error, errors.ContextFullError) and full.read == 0
        assert read == (5, None) and good.position == 5 and small.position == 8


def test_what_is_no_step_is_refused_and_changes_nothing(model, text):
    with kvtide.Batch(model, max_step=4) as batch, model.session() as a, model.session() as b:
        for items, says in (
            ([(a, [1]), (a, [1])], "are one"),
            ([(a, [1]), (b, [])], "no tokens"),
            ([(a, [1, 2]), (b, [1, 2, 3])], "at most 4"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=says):
                batch.step(items)
        for items in (["ab"], [(a, "text")], [(text, [1])], [(a,)]):
            with pytest.raises(TypeError):
                batch.step(items)
        assert a.position == b.position == 0
        assert batch.step([]) == []
        b.close()
        with pytest.raises(errors.ClosedError):
            batch.step([(a, [1]), (b, [1])])
        assert a.position == 0
        a.read([1])  # its turn was given back
    with pytest.raises(errors.ClosedError):
        batch.step([])
    for wrong in ({"threads": 0}, {"max_step": 0}):
        with pytest.raises(errors.InvalidArgumentError):
            model.batch(**wrong)
    with pytest.raises(TypeError):
        kvtide.Batch("model")


def test_threads_take_turns_or_are_told(model, text):
    ids = model.tokenizer.encode(text)
    with model.batch() as batch:
        sessions = [model.session() for _ in range(4)]

        def work():
            for _ in range(20):
                try:
                    batch.step((session, ids[:3]) for session in sessions)
                except errors.BusyError:
                    pass

        run_together(*[work] * 3)
        assert len({session.position for session in sessions}) == 1
