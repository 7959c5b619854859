"""Models and tokenizers as Python sees them."""

import os
import shutil

import numpy as np
import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors

NAMES = [
    "gemma3-rope-linear",
    "gemma3-window",
    "llama-mha-untied",
    "llama-rope-linear",
    "llama-rope-llama3",
    "llama-rope-yarn",
    "mistral-wide-heads",
    "qwen2-biases",
    "qwen3-head-norms",
]


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_every_architecture_are_those_of_the_reference(models, name):
    expected = np.load(models / f"{name}.logits.npy")
    with kvtide.Model.load(models / f"{name}.gguf") as model:
        with model.session(exact=True, key_type="f32", value_type="f32") as session:
            logits = session.read_logits(np.load(models / "tiny.ids.npy"))
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, atol=2e-4)


@pytest.mark.parametrize("name", ["gpt2-f32", "mistral-f16-shards", "qwen3-i8"])
def test_a_folder_is_loaded_like_a_file(models, name):
    folder = models.parent / "folders" / name
    with kvtide.Model.load(folder) as model:
        assert (model.name, model.notes) == (name, [])
        with model.session(exact=True, key_type="f32", value_type="f32") as session:
            logits = session.read_logits(np.load(models / "tiny.ids.npy"))
    np.testing.assert_allclose(logits, np.load(folder / "logits.npy"), atol=2e-4)


def test_a_folder_that_contradicts_itself_says_what_was_taken(models, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(models.parent / "folders" / "gpt2-f32", folder)
    config = (folder / "config.json").read_text("utf-8")
    (folder / "config.json").write_text(config.replace('"eos_token_id": 2', '"eos_token_id": 3'), "utf-8")
    with kvtide.Model.load(folder) as model:
        (note,) = model.notes
    assert note == "config.json says that 'eos_token_id' is 3, the tokenizer says 2 '</s>'; the tokenizer is right"


def test_a_model_tells_what_it_is(model, tiny):
    assert model.path == str(tiny)
    assert model.name == "llama-mha-untied"
    assert (model.architecture, model.layers, model.vocabulary, model.context_length) == ("llama", 2, 64, 256)
    assert model.parameters == 18592
    assert 0 < model.nbytes < tiny.stat().st_size
    assert repr(model).startswith("<kvtide.Model 'llama-mha-untied': llama, 18,592 parameters, ")


@pytest.mark.parametrize("kind", [str, os.fsencode, lambda path: path])
def test_a_path_may_be_text_bytes_or_a_path(tiny, kind):
    assert kvtide.Model.load(kind(tiny)).vocabulary == 64


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 3}, {"map_file": False}])
def test_options_of_loading_change_no_logit(tiny, text, options):
    with kvtide.Model.load(tiny).session() as plain, kvtide.Model.load(tiny, **options).session() as other:
        np.testing.assert_array_equal(plain.read_logits(text), other.read_logits(text))


def test_text_becomes_ids_and_text_again(model, models, text):
    tokenizer = model.tokenizer
    ids = tokenizer.encode(text)
    assert ids == np.load(models / "tiny.ids.npy").tolist()
    assert tokenizer.decode(ids) == text == tokenizer.decode(np.array(ids, np.uint16)).replace("\r", "")
    assert b"".join(tokenizer.piece(token) for token in ids).decode() == text
    assert tokenizer.decode([]) == "" and tokenizer.encode("") == []


def test_special_tokens_are_markers_unless_told_otherwise(model):
    tokenizer = model.tokenizer
    assert (len(tokenizer), tokenizer.bos, tokenizer.eos, tokenizer.adds_bos) == (64, 1, 2, False)
    assert tokenizer.encode("a", add_bos=True) == [1, tokenizer.find("a")]
    assert tokenizer.encode("a", add_bos=True, continues=True)[-1] == tokenizer.find("a")
    assert tokenizer.encode("</s>a") == [2, tokenizer.find("a")]
    assert 2 not in tokenizer.encode("</s>a", special=False)
    assert (tokenizer.decode([2]), tokenizer.decode([2], special=True)) == ("", "</s>")
    assert (tokenizer.piece(2), tokenizer.piece(2, special=True)) == (b"", b"</s>")
    assert tokenizer.ends_text(2) and not tokenizer.ends_text(tokenizer.find("a"))
    assert tokenizer.find("no such token") is None


def test_a_conversation_becomes_ids(model):
    as_dicts = [{"role": "user", "content": "hi"}]
    ids = model.encode_chat(as_dicts, template="chatml")
    assert ids == model.encode_chat([("user", "hi")], template="chatml")
    assert "hi" in model.tokenizer.decode(ids)
    assert len(model.encode_chat(as_dicts, template="chatml", open_answer=False)) < len(ids)
    assert "chatml" in kvtide.Model.chat_template_names()


def test_what_a_user_typed_is_never_a_marker(model):
    assert 2 not in model.encode_chat([("user", "</s>")], template="chatml")


def test_a_model_without_a_template_needs_a_name(model):
    assert model.chat_template == ""
    with pytest.raises(errors.UnsupportedError):
        model.encode_chat([("user", "hi")])
    with pytest.raises(errors.UnsupportedError, match="chatml"):
        model.encode_chat([("user", "hi")], template="no such template")


def test_a_closed_model_lives_on_in_its_sessions(tiny, text):
    model = kvtide.Model.load(tiny)
    with model.session() as session:
        session.read(text)
        before = session.logits
        model.close()
        model.close()
        assert model.closed and repr(model) == "<kvtide.Model, closed>"
        assert repr(model.tokenizer) == "<kvtide.Tokenizer, model closed>"
        session.clear()
        session.read(np.array(kvtide.Model.load(tiny).tokenizer.encode(text)))
        np.testing.assert_array_equal(session.logits, before)


def test_the_error_of_a_missing_file_is_what_one_expects(tmp_path):
    with pytest.raises(FileNotFoundError, match="no-such-model") as error:
        kvtide.Model.load(tmp_path / "no-such-model.gguf")
    assert isinstance(error.value, kvtide.Error) and error.value.code == "not_found"


@pytest.fixture
def named(tmp_path, tiny, monkeypatch):
    """A folder of models, as `kvtide fetch` leaves it."""
    folder = tmp_path / "cache" / "kvtide" / "models"
    folder.mkdir(parents=True)
    (folder / "Tiny-Llama-1.gguf").write_bytes(tiny.read_bytes())
    (folder / "tiny-gemma.gguf").write_bytes(tiny.read_bytes())
    monkeypatch.delenv("KVTIDE_MODELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_a_model_is_found_by_its_name_or_the_beginning_of_it(named, monkeypatch):
    for name in ("Tiny-Llama-1", "tinyllama", "TINY-L"):
        assert kvtide.Model.load(name).path == str(named / "Tiny-Llama-1.gguf")
    assert kvtide.Model("tiny-g").path == str(named / "tiny-gemma.gguf")
    monkeypatch.setenv("KVTIDE_MODELS", str(named.parent))
    with pytest.raises(errors.NotFoundError):
        kvtide.Model.load("tiny-g")
    monkeypatch.delenv("KVTIDE_MODELS")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(named.parent.parent))
    with pytest.raises(errors.NotFoundError, match="[.]cache/kvtide/models"):
        kvtide.Model.load("tiny-g")


def test_a_name_that_no_model_has_is_answered_with_what_helps(named, monkeypatch):
    with pytest.raises(errors.NotFoundError, match="^gemma3: .*cache/kvtide/models; `kvtide fetch gemma3` gets Gemma-3-270M$"):
        kvtide.Model.load("gemma3")
    with pytest.raises(FileNotFoundError, match="did you mean smollm2[?] `kvtide fetch smollm2`"):
        kvtide.Model.load("smolm2")
    with pytest.raises(errors.NotFoundError, match="did you mean Tiny-Llama-1[?]"):
        kvtide.Model.load("tinny-lama")
    with pytest.raises(errors.InvalidArgumentError, match="several models begin so: Tiny-Llama-1, tiny-gemma"):
        kvtide.Model.load("tiny")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    with pytest.raises(errors.NotFoundError, match="neither KVTIDE_MODELS, XDG_CACHE_HOME nor HOME is set"):
        kvtide.Model.load("gemma3")


def test_what_is_there_is_a_path_whatever_it_is_called(named, tiny, monkeypatch):
    (named / "tiny").write_bytes(tiny.read_bytes())
    monkeypatch.chdir(named)
    assert kvtide.Model.load("tiny").path == "tiny"
    with pytest.raises(errors.NotFoundError, match="^(?!.*fetch)"):
        kvtide.Model.load(type(named)("gemma3"))


def test_a_file_name_that_is_no_text_is_a_file_name_all_the_same(tmp_path, tiny):
    odd = os.fsencode(tmp_path) + b"/\xff.gguf"
    with pytest.raises(errors.NotFoundError):
        kvtide.Model.load(odd)
    with open(odd, "wb") as file:
        file.write(tiny.read_bytes())
    assert os.fsencode(kvtide.Model.load(odd).path) == odd


def test_errors_have_a_class_for_each_code():
    for code, kind in errors.BY_CODE.items():
        assert kind.code == code and issubclass(kind, kvtide.Error)
        assert getattr(errors, kind.__name__) is kind and kind.__doc__
    assert len(errors.BY_CODE) == 13
