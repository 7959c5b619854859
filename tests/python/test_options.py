"""Options by keyword: units, other names, and names that there are not."""

import inspect

import numpy as np
import pytest

import kvtide
from kvtide import _native, errors
from kvtide._arguments import byte_count
from kvtide._options import COMPLETE, GENERATE, SESSION, CompleteOptions, GenerateOptions, ProceduralOptions, SessionOptions

MIB = 1 << 20


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (5, 5),
        (np.int64(64 * MIB), 64 * MIB),
        ("64M", 64 * MIB),
        ("64MiB", 64 * MIB),
        ("64 MB", 64 * MIB),
        ("64m", 64 * MIB),
        ("1.5G", 1536 * MIB),
        ("1G", 1024 * MIB),
        ("16K", 16384),
        ("0.5 KiB", 512),
        ("4096", 4096),
        ("4096 bytes", 4096),
        (" 8M ", 8 * MIB),
    ],
)
def test_a_number_of_bytes_has_a_unit_or_not(given, size):
    assert byte_count(given, "kv_budget") == size


@pytest.mark.parametrize("given", ["", "M", "64Q", "64MM", "-1M", "1e3M", "64 M B", 0, -5, "0", "nan"])
def test_what_is_no_number_of_bytes_is_refused(model, given):
    with pytest.raises(errors.InvalidArgumentError, match="kv_budget must be"):
        model.session(kv_budget=given)


@pytest.mark.parametrize("given", [1.5, True, [64]])
def test_a_number_of_bytes_is_an_integer_or_text(model, given):
    with pytest.raises(TypeError, match="kv_budget"):
        model.session(kv_budget=given)


def test_a_budget_is_kept_and_is_that_of_the_procedural_options(model):
    text = [(7 * i * i + 3 * i) % 60 for i in range(1000)]
    with model.session(kv_budget="1M") as session, model.session(procedural={"budget": MIB}) as other:
        session.read(text)
        other.read(text)
        assert session.position == 1000 > session.context
        assert 0 < session.procedural["kv_bytes_peak"] <= MIB
        np.testing.assert_array_equal(session.logits, other.logits)
    with model.session(procedural={"budget": "1MiB"}) as session:
        session.read(text)
        np.testing.assert_array_equal(session.logits, other_logits(model, text))


def other_logits(model, text):
    with model.session(kv_budget=MIB) as session:
        session.read(text)
        return session.logits


def test_two_budgets_must_be_one(model):
    model.session(kv_budget="1M", procedural={"budget": MIB}).close()
    with pytest.raises(errors.InvalidArgumentError, match="kv_budget is 1048576 and procedural"):
        model.session(kv_budget="1M", procedural={"budget": "2M"})


TYPOS = [
    (lambda m: m.session(contxt=5), "unknown option contxt; did you mean context?"),
    (lambda m: kvtide.Session(m, kv_budged="1M"), "unknown option kv_budged; did you mean kv_budget?"),
    (lambda m: m.session().generate("a", max_token=3), "unknown option max_token; did you mean max_tokens?"),
    (lambda m: m.session().complete("a", repeat_penalti=1.1), "unknown option repeat_penalti; did you mean repeat_penalty?"),
    (lambda m: m.session().chat("a", logit_processor=[]), "unknown option logit_processor; did you mean logits_processor?"),
    (lambda m: m.generate("a", kv_buget=5), "unknown option kv_buget; did you mean kv_budget?"),
    (lambda m: m.chat([("user", "a")], temprature=1), "unknown option temprature; did you mean temperature?"),
    (lambda m: m.session().plan("drop", 1, 2, close_gab=True), "unknown option close_gab; did you mean close_gap?"),
    (lambda m: m.session(n_ctx=512), "unknown option n_ctx; the length of a text is context"),
    (lambda m: m.generate("a", do_sample=True), "unknown option do_sample; temperature=0.7 samples"),
    (lambda m: m.session(xyzzy=1), "unknown option xyzzy; there are context, "),
]


@pytest.mark.parametrize(("call", "message"), TYPOS, ids=[message.split(";")[0] for _, message in TYPOS])
def test_a_name_that_there_is_not_is_refused_with_the_nearest_one(model, call, message):
    with pytest.raises(TypeError) as error:
        call(model)
    assert str(error.value).startswith(message)


def test_a_key_of_procedural_that_there_is_not_is_refused_with_the_nearest_one(model):
    with pytest.raises(errors.InvalidArgumentError, match="unknown option windows; did you mean window?"):
        model.session(procedural={"windows": 3})


def test_max_new_tokens_is_max_tokens(session):
    assert len(session.complete("ab", max_new_tokens=3).tokens) == 3
    with pytest.raises(TypeError, match="max_new_tokens is another name for max_tokens"):
        session.complete(max_new_tokens=3, max_tokens=3)
    with pytest.raises(errors.InvalidArgumentError, match="max_tokens"):
        session.complete(max_new_tokens=-7)


def test_the_penalty_has_the_name_that_transformers_gives_it(session):
    first = session.fork().complete("ab", max_tokens=8, repeat_penalty=1.9)
    assert session.complete("ab", max_tokens=8, repetition_penalty=1.9).tokens == first.tokens


def test_tables_and_types_name_the_same_options():
    for table, typed in ((SESSION, SessionOptions), (GENERATE, GenerateOptions), (COMPLETE, CompleteOptions)):
        assert {*table.options, *table.other_names} == {*typed.__required_keys__, *typed.__optional_keys__}
    assert set(_native.procedural_option_names()) == ProceduralOptions.__optional_keys__


def test_signatures_show_the_options():
    shown = inspect.signature(kvtide.Session.generate).parameters
    assert shown["temperature"].default == 0.0 and shown["top_k"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "kv_budget" in inspect.signature(kvtide.Model.chat).parameters
    assert list(inspect.signature(kvtide.Session).parameters)[:2] == ["model", "context"]


def test_messages_speak_of_arguments(model):
    with model.session(context=10) as session:
        with pytest.raises(errors.ContextFullError) as full:
            session.read([5] * 20)
    with pytest.raises(errors.UnsupportedError) as template:
        model.encode_chat([("user", "hi")])
    with pytest.raises(errors.UnsupportedError) as named:
        model.encode_chat([("user", "hi")], template="no such")
    for error in (full, template, named):
        words = str(error.value).replace("(", " ").replace(")", " ").split()
        assert not [word for word in words if word.startswith("-")], error.value
    assert "context" in str(full.value) and "template" in str(template.value)


def test_names_of_files_are_never_taken_for_flags(tmp_path):
    odd = tmp_path / "a -c --exact--tokens.gguf"
    with pytest.raises(errors.NotFoundError) as error:
        kvtide.Model.load(tmp_path / "a--exact.gguf")
    assert "a--exact.gguf" in str(error.value) and not odd.exists()
