"""After reading was interrupted: what a session says to those who want to go on, and how they can."""

import numpy as np
import pytest

from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors

SAID = r"interrupted after 16 of \d+ tokens, so there are no logits to go on from; read the other \d+ tokens, or clear"
USES = {
    "complete": lambda s: s.complete(max_tokens=1),
    "generate": lambda s: next(s.generate()),
    "a processor": lambda s: s.complete(max_tokens=1, logits_processor=np.negative),
    "logits": lambda s: s.logits,
    "log_probabilities": lambda s: s.log_probabilities(),
    "a fork": lambda s: s.fork().complete(max_tokens=1),
}


def interrupt(done, total):
    raise KeyboardInterrupt


@pytest.fixture
def interrupted(model, text):
    with model.session(prefill_chunk=16) as session:
        with pytest.raises(KeyboardInterrupt):
            session.read(text, progress=interrupt)
        assert session.position == 16
        yield session


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_it_says_what_happened(interrupted, use):
    with pytest.raises(errors.InvalidArgumentError, match=SAID):
        use(interrupted)
    assert interrupted.position == 16


def test_reading_the_rest_makes_it_whole(interrupted, model, text):
    interrupted.read(model.tokenizer.encode(text)[16:])
    with model.session() as other:
        other.read(text)
        np.testing.assert_array_equal(interrupted.logits, other.logits)


@pytest.mark.parametrize("stop", [lambda *_: False, interrupt], ids=["False", "Ctrl-C"])
def test_a_prompt_that_was_interrupted_is_told_likewise(model, text, stop):
    with model.session(prefill_chunk=16) as session:
        with pytest.raises((KeyboardInterrupt, errors.CancelledError)):
            session.complete(text, progress=stop)
        with pytest.raises(errors.InvalidArgumentError, match=SAID):
            session.complete()


def test_what_comes_afterwards_is_told_as_what_it_is(interrupted, tmp_path):
    interrupted.state.truncate(8)
    with pytest.raises(errors.InvalidArgumentError, match="taken back"):
        interrupted.complete()
    with pytest.raises(KeyboardInterrupt):
        interrupted.read([5] * 40, progress=interrupt)
    interrupted.clear()
    with pytest.raises(errors.InvalidArgumentError, match="nothing was read yet"):
        interrupted.complete()


def test_an_interrupt_that_comes_when_all_is_read_is_too_late(model):
    with model.session(prefill_chunk=16) as session:
        with pytest.raises(KeyboardInterrupt):
            session.read([5] * 10, progress=interrupt)
        assert session.position == 10
        with pytest.raises(errors.InvalidArgumentError) as error:
            session.state.truncate(8)
            session.complete()
        assert "taken back" in str(error.value)
