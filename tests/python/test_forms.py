"""Answers that are held to a form: json_schema and grammar."""

import json

import pytest

from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors

NUMBER = {"type": "integer", "minimum": 10, "maximum": 12}  # the tiny models have digits, and no quotation marks


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 3}])
def test_an_answer_follows_its_schema(model, sampling):
    with model.session() as session, model.session() as steps:
        answer = session.complete("ab", json_schema=NUMBER, max_tokens=20, **sampling)
        assert json.loads(answer.text) in (10, 11, 12)
        assert answer.reason == "end_of_text"
        generation = steps.generate("ab", json_schema=json.dumps(NUMBER), max_tokens=20, **sampling)
        assert generation.finish() == answer
        assert session.position == steps.position


def test_a_class_that_tells_its_schema_is_one(session):
    class Eleven:
        @staticmethod
        def model_json_schema():
            return {"const": 11}

    assert session.complete("ab", json_schema=Eleven, max_tokens=20).text == "11"


def test_an_answer_follows_its_grammar(model):
    with model.session() as session:
        heard = []
        answer = session.complete("ab", grammar='root ::= "b" "a"+ "c"', max_tokens=30, stop=["aaaa"], on_text=heard.append)
        assert answer.text.startswith("b") and set(answer.text[1:].rstrip("c")) <= {"a"}
        assert "".join(heard) == answer.text
    with model.session() as session:
        yes = session.chat("ab", template="chatml", grammar='root ::= "yes" | "no"', max_tokens=10)
        assert yes.text in ("yes", "no")


def test_a_form_and_a_processor_both_hold(session, model):
    def no_b(logits):
        logits[model.tokenizer.encode("b", add_bos=False)] = float("-inf")

    assert session.complete("ab", grammar='root ::= "b" | "c"', logits_processor=no_b, max_tokens=4).text == "c"


def test_each_of_several_prompts_has_its_own_answer(session):
    answers = session.complete(["ab", "cd"], grammar='root ::= [a-c]{3}', max_tokens=10)
    assert [len(answer.text) for answer in answers] == [3, 3]


@pytest.mark.parametrize(
    "options, error, says",
    [
        ({"json_schema": NUMBER, "grammar": "root ::= [a]"}, errors.InvalidArgumentError, "exclude each other"),
        ({"json_schema": 7}, TypeError, "json_schema must be a dict"),
        ({"json_schema": "{"}, errors.BadFormatError, "JSON"),
        ({"json_schema": ""}, errors.InvalidArgumentError, "json_schema is empty"),
        ({"json_schema": {"pattern": "a"}}, errors.UnsupportedError, "pattern"),
        ({"grammar": "root ="}, errors.InvalidArgumentError, "line 1"),
    ],
)
def test_what_is_no_form_is_refused_before_the_prompt_is_read(session, options, error, says):
    for call in (session.complete, session.generate):
        with pytest.raises(error, match=says):
            call("ab", **options)
    assert session.position == 0
