"""Going back where windows have moved on, or layers carry more than rows."""

import numpy as np
import pytest

import kvtide
from kvtide import _native, errors  # noqa: F401


@pytest.fixture(params=["rolling", "lfm2"])
def talk(request, model):
    """A model and the options of its memory."""
    if request.param == "rolling":
        yield model, {"rolling": (4, 60), "checkpoint_every": 50}
        return
    folder = request.path.parent.parent / "goldens" / "folders" / "lfm2-f32"
    with kvtide.Model(folder) as other:
        yield other, {"context": 1000, "checkpoint_every": 50}


def text_of(count, seed):
    return np.random.default_rng(seed).integers(3, 60, count).tolist()


def test_truncate_reads_fewer_tokens_again_than_lie_between_checkpoints(talk):
    model, options = talk
    text, more = text_of(800, 1), text_of(20, 2)
    with model.session(**options) as session:
        session.read(text)
        assert session.checkpoints == tuple(range(50, 801, 50))
        for length in (787, 600, 433, 21):
            heard = []
            record = session.truncate(length, progress=lambda read, of: heard.append((read, of)))
            again = record.read_again
            assert record.name == "truncate" and (again == length % 50 if "rolling" not in options else again < 50)
            assert heard == [(again, again)] * bool(again)
            assert session.position == length and session.tokens.tolist() == text[:length]
            with pytest.raises(errors.InvalidArgumentError, match="read a token"):
                session.logits  # noqa: B018
            with session.fork() as fork, model.session(**options) as fresh:
                fresh.read(text[:length])
                np.testing.assert_array_equal(fork.read_logits(more), fresh.read_logits(more))
        with pytest.raises(errors.InvalidArgumentError, match="the state has read 21"):
            session.truncate(22)


def test_a_checkpoint_is_made_when_asked_for_and_refused_without_room(talk):
    model, options = talk
    with model.session(**{**options, "checkpoint_every": 0}) as session:
        session.read(text_of(150, 3))
        assert session.checkpoint() and session.checkpoints == (150,)
        session.read(text_of(600, 4))
        assert session.plan("truncate", 300, nearest=True).expected.read_again == 150
        assert not session.plan("truncate", 300)
        record = session.state.truncate(300, nearest=True)
        assert record.read_again == 150 and "150 tokens to be read again" in str(record)
        assert session.position == 150
    with model.session(**{**options, "checkpoint_every": 0, "checkpoint_budget": 1}) as session:
        session.read(text_of(150, 3))
        assert not session.checkpoint() and session.checkpoints == ()


def test_checkpoints_go_through_files_and_forks(talk, tmp_path):
    model, options = talk
    with model.session(**options) as session, model.session(**options) as other:
        session.read(text_of(400, 5))
        session.save(tmp_path / "talk.kv")
        other.load(tmp_path / "talk.kv")
        with session.fork() as fork:
            assert fork.checkpoints == other.checkpoints == session.checkpoints
            assert fork.truncate(310).read_again == other.truncate(310).read_again <= 10
        assert session.position == 400


def test_a_truncate_that_is_stopped_holds_whole_chunks(talk):
    model, options = talk
    with model.session(**{**options, "checkpoint_every": 200}, prefill_chunk=8) as session:
        text = text_of(700, 6)
        session.read(text)
        with pytest.raises(errors.CancelledError):
            session.truncate(540, progress=lambda read, of: read < 16)
        assert session.position == 416 and session.tokens.tolist() == text[:416]
