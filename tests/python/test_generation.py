"""Continuing a text: pieces, limits, stop strings, and what the session holds afterwards."""

import numpy as np
import pytest

from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors
from kvtide._options import GENERATE
from kvtide.generation import Generation


def test_greedy_pieces_are_the_most_likely_tokens(model, text):
    with model.session() as session, model.session() as other:
        other.read(text)
        for piece in session.generate(text, max_tokens=12):
            assert piece.token == int(np.argmax(other.logits))
            assert piece.log_probability == pytest.approx(other.log_probabilities().max())
            other.read([piece.token])
            assert session.position == other.position


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0}, {"temperature": 0.9, "repeat_penalty": 1.3}])
@pytest.mark.parametrize("stop", [(), "ou", ["7", "x"], ["zz", "e"]])
def test_an_iterator_and_one_call_give_the_same_answer(model, text, seed, options, stop):
    options = {"max_tokens": 40, "seed": seed, "stop": stop, **options}
    with model.session() as session, model.session() as other:
        generation = session.generate(text, **options)
        pieces = list(generation)
        whole = other.complete(text, **options)
        assert generation.reason == whole.reason
        assert generation.tokens == whole.tokens == [piece.token for piece in pieces if piece.token is not None]
        assert generation.text == whole.text == str(whole) == "".join(map(str, pieces))
        for end in [stop] if isinstance(stop, str) else stop:
            assert end not in whole.text


def test_a_seed_repeats_an_answer_and_another_one_does_not(session, text):
    def answer(seed):
        session.clear()
        return session.complete(text, max_tokens=30, temperature=2.0, top_k=0, top_p=1, min_p=0, seed=seed).tokens

    assert answer(3) == answer(3) != answer(4)


def test_leaving_the_loop_early_keeps_what_was_handed_out(session):
    generation = session.generate("ab", max_tokens=50)
    taken = [next(generation).token for _ in range(5)]
    assert generation.tokens == taken and session.position == 2 + 5
    assert generation.reason is None and repr(generation) == "<kvtide.Generation: 5 tokens, going on>"


def test_a_generation_without_a_prompt_goes_on_from_what_was_read(session):
    session.read("ab")
    first = next(session.generate())
    assert session.position == 3
    session.clear()
    assert next(session.generate("ab")) == first


def test_max_tokens_ends_it(session):
    generation = session.generate("ab", max_tokens=3)
    assert len(list(generation)) == 3 and generation.reason == "max_tokens"
    assert list(generation) == []  # an iterator that ended stays so
    generation = session.generate(max_tokens=0)
    assert list(generation) == [] and generation.reason == "max_tokens"
    assert session.complete(max_tokens=0) == ("", [], "max_tokens")


def test_a_full_context_ends_it(model):
    with model.session(context=10) as session, model.session(context=10) as other:
        generation = session.generate("ab")
        list(generation)
        assert generation.reason == "context_full" and session.position == 10
        assert other.complete("ab") == (generation.text, generation.tokens, "context_full")


def test_stop_tokens_end_it_and_are_not_part_of_it(session):
    tokens = session.complete("ab", max_tokens=10).tokens
    session.clear()
    generation = session.generate("ab", max_tokens=10, stop_tokens=[tokens[4]])
    list(generation)
    assert generation.tokens == tokens[: tokens.index(tokens[4])] and generation.reason == "end_of_text"


def test_the_end_of_text_token_ends_it(model):
    """A state in which it is the most likely one: whatever follows the token with the largest logit for it."""
    with model.session() as session:
        best = max(range(4, 64), key=lambda token: (session.clear(), session.read([token]), session.logits[2])[2])
        session.clear()
        session.read([best])
        generation = session.generate(temperature=1e6, top_k=0, top_p=1, min_p=0, max_tokens=500, seed=5)
        list(generation)
    assert generation.reason in ("end_of_text", "context_full")
    assert 2 not in generation.tokens


def test_the_repeat_penalty_sees_the_prompt_unless_told_otherwise(session):
    greedy = session.complete("ab", max_tokens=1).tokens[0]
    session.clear()
    # A penalty of 1000 makes every positive logit of the history vanish.
    assert session.complete("ab", max_tokens=1, repeat_penalty=1e3, history=[greedy]).tokens != [greedy]
    session.clear()
    assert session.complete("ab", max_tokens=1, repeat_penalty=1e3, history=[greedy], repeat_last=0).tokens == [greedy]


def test_text_arrives_as_it_comes_and_false_ends_it(session):
    heard = []
    answer = session.complete("ab", max_tokens=20, on_text=heard.append)
    assert "".join(heard) == answer.text and len(heard) > 1
    answer = session.complete(max_tokens=20, on_text=lambda text: False)
    assert answer.reason == "cancelled" and len(answer.tokens) == 1


def test_an_exception_of_on_text_comes_out_and_the_session_goes_on(session):
    with pytest.raises(ZeroDivisionError):
        session.complete("ab", max_tokens=20, on_text=lambda text: 1 / 0)
    assert not session.busy
    position = session.position
    session.read("c")
    assert session.position == position + 1


def test_cancel_ends_a_generation_at_its_next_step(session):
    generation = session.generate("ab")
    next(generation)
    session.cancel()
    assert list(generation) == [] and generation.reason == "cancelled"
    assert session.position == 3
    assert len(list(session.generate(max_tokens=2))) == 2


def test_cancel_ends_a_completion(session):
    with pytest.raises(errors.CancelledError):
        session.complete("ab", max_tokens=100, on_text=lambda text: session.cancel())
    assert session.read("a") == 1


@pytest.mark.parametrize("use", [lambda s: s.read("a"), lambda s: s.clear(), lambda s: next(s.generate())])
def test_a_generation_notices_that_the_session_moved_on(session, use):
    generation = session.generate("ab")
    next(generation)
    use(session)
    with pytest.raises(errors.BusyError, match="start a new one"):
        next(generation)


class Scripted:
    """Stands in for a native session and a tokenizer: hands out given pieces of bytes, one a token."""

    cancels = changes = position = 0
    room = 1000

    def __init__(self, pieces):
        self.pieces = pieces

    def pick(self, sampler, recent):
        return len(recent)

    def log_probability(self, token):
        return 0.0

    def advance(self, token, changes):
        self.position += 1
        return changes

    def ends_text(self, token):
        return token >= len(self.pieces)

    def piece(self, token):
        return self.pieces[token]


@pytest.mark.parametrize(
    ("pieces", "stop", "texts", "reason"),
    [
        ([b"a", b"b"], [], ["a", "b"], "end_of_text"),
        ([b"\xc3", b"\xa9t\xc3", b"\xa9"], [], ["", "\xe9t", "\xe9"], "end_of_text"),
        ([b"\xf0\x9f\x98", b"\x80"], [], ["", "\U0001f600"], "end_of_text"),
        ([b"a\xf0\x9f"], [], ["a", "\ufffd"], "end_of_text"),
        ([b"\xff", b"a"], [], ["\ufffd", "a"], "end_of_text"),
        ([b"one", b" st", b"op", b" two"], ["stop"], ["one", " ", ""], "stop_string"),
        ([b"one", b" st", b"ep", b" two"], ["stop"], ["one", " ", "step", " two"], "end_of_text"),
        ([b"one st"], ["stop"], ["one ", "st"], "end_of_text"),
        ([b"aaab"], ["aab", "ab"], ["a"], "stop_string"),
        ([b"aa", b"ab"], ["aab"], ["", "a"], "stop_string"),
        ([b"\xc3", b"\xa9"], ["\xe9"], ["", ""], "stop_string"),
        ([b"abc"], [""], ["abc"], "end_of_text"),
    ],
)
def test_text_is_handed_out_when_it_is_certain(pieces, stop, texts, reason):
    script = Scripted(pieces)
    generation = Generation(script, script, GENERATE({"stop": stop}), [])
    assert [piece.text for piece in generation] == texts
    assert generation.text == "".join(texts) and generation.reason == reason


@pytest.mark.parametrize("memory", [{}, {"rolling": (2, 40)}])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 4}, {"stop": ["e"]}])
def test_a_draft_changes_no_answer_and_nothing_that_the_session_holds(model, text, memory, options):
    with model.session(**memory) as plain, model.session(**memory) as drafting:
        heard = []
        wanted = plain.complete(text * 3, max_tokens=60, **options)
        got = drafting.complete(text * 3, max_tokens=60, draft="ngram", on_text=heard.append, **options)
        assert got == wanted and "".join(heard) == wanted.text
        assert np.array_equal(plain.tokens, drafting.tokens)
        assert np.array_equal(plain.logits, drafting.logits)


def test_a_conversation_goes_on_behind_an_answer_with_a_draft(model):
    with model.session() as plain, model.session() as drafting:
        for question in ("ab", "cd"):
            wanted = plain.chat(question, template="chatml", max_tokens=20)
            assert drafting.chat(question, template="chatml", max_tokens=20, draft="ngram") == wanted
            assert plain.position == drafting.position


@pytest.mark.parametrize(
    "options, says",
    [
        ({"draft": "tree"}, 'draft must be "ngram" or None'),
        ({"draft": "ngram", "logits_processor": lambda logits: logits}, "draft and logits_processor exclude each other"),
        ({"draft": "ngram", "stopping_criteria": lambda it: False}, "draft and stopping_criteria exclude each other"),
    ],
)
def test_a_draft_that_cannot_be_is_refused_before_the_prompt_is_read(session, options, says):
    with pytest.raises(errors.InvalidArgumentError, match=says):
        session.complete("ab", **options)
    with pytest.raises(errors.InvalidArgumentError, match="draft and stream=True exclude each other"):
        session.chat("ab", template="chatml", stream=True, draft="ngram")
    assert session.position == 0
