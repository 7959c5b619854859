"""Conversations: templates, answers as they come, and turns that read nothing twice."""

import json
import shutil

import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors

HELLO = [{"role": "user", "content": "hi"}]
CHATML = {"template": "chatml", "max_tokens": 6}


@pytest.fixture(scope="module")
def chatty(models, tmp_path_factory):
    """A model with a chat template of its own."""
    folder = tmp_path_factory.mktemp("models") / "chatty"
    shutil.copytree(models.parent / "folders" / "llama-f32", folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    template = "{% for m in messages %}{{ '[' + m.role + ' ' + m.content|trim + ']' }}{% endfor %}"
    template += "{% if tools %}{{ tools|length }}{% endif %}{% if add_generation_prompt %}{{ '[assistant ' }}{% endif %}"
    path.write_text(json.dumps({**config, "chat_template": template}))
    with kvtide.Model.load(folder) as model:
        yield model


def test_the_template_of_the_model_is_used(chatty):
    assert "m.role" in chatty.chat_template
    text = chatty.tokenizer.apply_chat_template(HELLO, [{"name": "f"}], tokenize=False, add_generation_prompt=True)
    assert text == "[user hi]1[assistant "
    assert chatty.encode_chat(HELLO) == chatty.tokenizer.encode("[user hi][assistant ")
    assert len(chatty.chat(HELLO, max_new_tokens=3).tokens) == 3


def test_apply_chat_template_gives_ids_or_text(model):
    ids = model.apply_chat_template(HELLO, chat_template="chatml")
    assert ids == model.encode_chat(HELLO, template="chatml", open_answer=False)
    opened = model.tokenizer.apply_chat_template(HELLO, chat_template="chatml", add_generation_prompt=True)
    assert opened == model.encode_chat(HELLO, template="chatml") and opened[: len(ids)] == ids
    text = model.apply_chat_template(HELLO, tokenize=False, chat_template="chatml")
    assert text == "<|im_start|>user\nhi<|im_end|>\n"
    assert model.apply_chat_template(HELLO, chat_template="{{ messages[0].content }}") == model.tokenizer.encode("hi")
    with pytest.raises(errors.UnsupportedError):
        model.apply_chat_template(HELLO)


def test_an_answer_comes_at_once_or_as_it_is_written(model):
    whole = model.chat(HELLO, **CHATML)
    stream = model.chat(HELLO, stream=True, **CHATML)
    assert "".join(map(str, stream)) == whole.text
    assert (stream.tokens, stream.reason) == (whole.tokens, whole.reason)
    with model.session() as session:
        assert session.complete(model.encode_chat(HELLO, template="chatml"), max_tokens=6) == whole
    heard = []
    assert model.chat(HELLO, on_text=heard.append, **CHATML).text == "".join(heard) == whole.text


def test_options_of_the_session_and_of_the_answer_stand_side_by_side(model):
    answer = model.chat(HELLO, kv_budget="1M", context=64, threads=1, temperature=0.9, seed=3, **CHATML)
    assert len(answer.tokens) <= 6
    with pytest.raises(errors.ContextFullError):
        model.chat(HELLO, context=4, **CHATML)


def test_a_second_turn_reads_only_what_is_new(model):
    with model.session() as session:
        first = session.chat(HELLO, **CHATML)
        held = session.position
        talk = [*HELLO, {"role": "assistant", "content": f" {first.text}\n"}, {"role": "user", "content": "more"}]
        second = session.chat(talk, **CHATML)
        read = session.position - held - len(second.tokens)
        assert 0 < read < len(model.encode_chat(talk, template="chatml"))
        with model.session() as other:
            other.chat("hi", **CHATML)
            assert other.chat("more", **CHATML) == second
            assert other.tokens.tolist() == session.tokens.tolist()


def test_a_stream_that_was_left_early_is_part_of_the_conversation(model):
    with model.session() as session:
        stream = session.chat("hi", stream=True, **CHATML)
        said = str(next(stream)) + str(next(stream))
        talk = [("user", "hi"), ("assistant", said), ("user", "more")]
        assert session.chat(talk, **CHATML).tokens
        assert [message[0] for message in session._talk.all()] == ["user", "assistant", "user", "assistant"]


def test_a_conversation_that_is_not_the_one_held_is_refused(model):
    with model.session() as session:
        answer = session.chat("hi", **CHATML)
        held = session.position
        for wrong in ([("user", "other"), ("assistant", answer.text), ("user", "x")], [("user", "more")]):
            with pytest.raises(errors.InvalidArgumentError, match="do not begin with the conversation"):
                session.chat(wrong, **CHATML)
        with pytest.raises(errors.InvalidArgumentError, match="nothing new"):
            session.chat([("user", "hi"), ("assistant", answer.text)], **CHATML)
        assert session.position == held
        session.clear()
        assert session.chat([("user", "other")], **CHATML)


def test_a_conversation_behind_a_text_sees_the_text(model, text):
    with model.session() as session:
        session.read(text[:60])
        held = session.position
        session.chat("hi", **CHATML)
        ids = model.encode_chat(HELLO, template="chatml", continues=True)
        assert session.tokens[held : held + len(ids)].tolist() == ids


def test_a_fork_goes_on_with_the_conversation(model):
    with model.session() as session:
        session.chat("hi", **CHATML)
        with session.fork() as fork:
            there = fork.chat("more", **CHATML)
        assert session.chat("more", **CHATML) == there


@pytest.mark.parametrize(
    ("messages", "error"),
    [(None, TypeError), (3, TypeError), ([("user",)], TypeError), ([], errors.InvalidArgumentError), ([("robot", "hi")], errors.InvalidArgumentError)],
)
def test_what_is_no_conversation_is_refused_and_nothing_is_read(session, messages, error):
    with pytest.raises(error):
        session.chat(messages, template="chatml")
    assert session.position == 0


def test_a_template_that_writes_earlier_turns_another_way_reads_them_again(chatty):
    with chatty.session() as session:
        first = session.chat("hi", max_tokens=6)
        talk = [("user", "hi"), ("assistant", first.text), ("user", "more")]
        # The words of the first answer are dropped from what the model sees.
        short = "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% endif %}{% endfor %}"
        session.chat(talk, template=short, max_tokens=2)
        ids = chatty.encode_chat(talk, template=short)
        assert session.tokens[: len(ids)].tolist() == ids


def test_what_the_template_refuses_is_one_error_and_nothing_is_read(chatty):
    with chatty.session() as session:
        with pytest.raises(errors.InvalidArgumentError, match="no robots"):
            session.chat("hi", template="{{ raise_exception('no robots') }}")
        assert session.position == 0
