"""Logits processors and stopping criteria, several prompts at once, and progress bars."""

import sys
import types

import numpy as np
import pytest

from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors


def only(token):
    def processor(logits):
        kept = logits[token]
        logits[:] = -np.inf
        logits[token] = kept

    return processor


def test_a_processor_changes_what_is_chosen(session):
    assert session.complete("ab", max_tokens=3, logits_processor=only(7)).tokens == [7, 7, 7]
    assert [piece.token for piece in session.generate(max_tokens=2, logits_processor=[only(9)])] == [9, 9]


def test_a_processor_that_changes_nothing_changes_no_token(model, text):
    options = {"max_tokens": 20, "temperature": 1.3, "seed": 5, "repeat_penalty": 1.2}
    with model.session() as session, model.session() as other:
        plain = session.complete(text, **options)
        assert other.complete(text, logits_processor=lambda logits: logits.astype(np.float64), **options) == plain


def test_processors_run_one_after_the_other_and_may_see_the_tokens(session):
    seen = []

    def first(tokens, logits):
        seen.append(tokens.tolist())
        return np.zeros_like(logits)

    def second(logits):
        assert not logits.any()
        logits[11] = 1.0

    assert session.complete([4, 5], max_tokens=2, logits_processor=[first, second]).tokens == [11, 11]
    assert seen == [[4, 5], [4, 5, 11]]


def test_probabilities_stay_those_of_the_model(session):
    session.read("ab")
    expected = session.log_probabilities()[7]
    assert next(session.generate(logits_processor=only(7))).log_probability == pytest.approx(expected)


WRONG = [
    (lambda logits: "text", TypeError, "array of numbers"),
    (lambda logits: logits[:5], errors.InvalidArgumentError, "shape"),
    (lambda logits: np.full_like(logits, np.nan), errors.NumericError, "must be a number"),
    (lambda logits: np.full_like(logits, -np.inf), errors.NumericError, "no token is possible"),
]


@pytest.mark.parametrize(("processor", "error", "message"), WRONG)
def test_what_is_no_row_of_logits_is_refused(session, processor, error, message):
    with pytest.raises(error, match=message):
        session.complete("ab", max_tokens=2, logits_processor=processor)
    assert session.position == 2 and session.read("a") == 1


@pytest.mark.parametrize("name", ["logits_processor", "stopping_criteria"])
@pytest.mark.parametrize("given", [3, "text", [None]])
def test_what_cannot_be_called_is_refused_before_the_prompt_is_read(session, name, given):
    with pytest.raises(TypeError, match=name):
        session.generate("ab", **{name: given})
    assert session.position == 0


def test_a_function_that_needs_only_one_argument_takes_the_logits(session):
    assert session.complete("ab", max_tokens=1, logits_processor=lambda logits, scale=2.0: logits * scale).tokens
    assert session.complete("ab", max_tokens=1, logits_processor=np.negative).tokens


def test_a_criterion_ends_the_answer_with_the_newest_token(session):
    plain = session.complete("ab", max_tokens=6)
    session.clear()
    answer = session.complete("ab", stopping_criteria=lambda generation: len(generation.tokens) == 4)
    assert answer.tokens == plain.tokens[:4] and answer.reason == "stopping_criteria"
    assert plain.text.startswith(answer.text) and session.position == 6


def test_a_criterion_of_transformers_form_sees_tokens_and_logits(session):
    seen = []

    def criterion(tokens, logits):
        seen.append((tokens.tolist(), logits.shape))
        return np.array([len(seen) == 2])

    generation = session.generate([4, 5], stopping_criteria=[criterion])
    tokens = [piece.token for piece in generation]
    assert generation.reason == "stopping_criteria" and len(tokens) == 2
    assert seen == [([4, 5, tokens[0]], (64,)), ([4, 5, *tokens], (64,))]


def test_text_that_was_held_back_comes_with_the_last_piece(session):
    text = session.complete("ab", max_tokens=3).text
    session.clear()
    generation = session.generate("ab", stop=text + "never", stopping_criteria=lambda g: len(g.tokens) == 3)
    assert "".join(map(str, generation)) == text == generation.text


def test_on_text_hears_the_text_with_hooks_too_and_false_ends_it(session):
    heard = []
    answer = session.complete("ab", max_tokens=5, logits_processor=lambda logits: None, on_text=heard.append)
    assert "".join(heard) == answer.text
    answer = session.complete(max_tokens=5, logits_processor=lambda logits: None, on_text=lambda text: False)
    assert answer.reason == "cancelled"


def test_several_prompts_give_a_list_in_order_and_leave_the_session_as_it_is(model, text):
    with model.session() as session:
        session.read(text[:40])
        held = session.tokens.tolist()
        answers = session.complete(["one", "two", "one"], max_tokens=5)
        assert session.tokens.tolist() == held and answers[0] == answers[2]
        assert answers == session.generate(("one", "two", "one"), max_new_tokens=5)
        session.read("two")
        assert session.complete(max_tokens=5) == answers[1]
    assert model.generate(["a", "b"], max_tokens=2, context=16)[1].reason == "max_tokens"
    with pytest.raises(TypeError, match=r"prompt\[1\]"):
        model.generate(["a", 3])


def test_one_prompt_of_a_model_is_an_iterator(model):
    with model.session() as session:
        expected = session.complete("ab", max_tokens=5).text
    assert "".join(map(str, model.generate("ab", max_tokens=5, threads=1))) == expected


class Bar:
    made = []

    def __init__(self, items=None, **options):
        self.items, self.n, self.total = items, 0, None
        Bar.made.append(self)

    def update(self, more):
        self.n += more

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.closed = True

    def __iter__(self):
        for item in self.items:
            self.n += 1
            yield item


@pytest.fixture
def bars(monkeypatch):
    package, auto = types.ModuleType("tqdm"), types.ModuleType("tqdm.auto")
    auto.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", package)
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    Bar.made = []
    return Bar.made


@pytest.mark.parametrize("call", ["read", "read_logits", "score", "complete"])
def test_progress_is_shown_when_asked_for(model, text, bars, call):
    with model.session(prefill_chunk=16) as session:
        getattr(session, call)(text, progress=False, **({"max_tokens": 1} if call == "complete" else {}))
        assert not bars
        session.clear()
        getattr(session, call)(text, progress=True, **({"max_tokens": 1} if call == "complete" else {}))
    (bar,) = bars
    assert bar.n == bar.total == len(model.tokenizer.encode(text)) and bar.closed


def test_several_prompts_have_one_bar(model, bars):
    model.generate(["a", "b", "c"], max_tokens=1, progress=True)
    assert [bar.n for bar in bars] == [3]


def test_without_tqdm_the_message_says_what_to_do(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tqdm"):
        session.read("ab", progress=True)
    assert session.position == 0
