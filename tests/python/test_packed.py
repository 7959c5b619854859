"""Packed weights: the cache folder, and files that were named."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest

import kvtide
from kvtide import _native  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import word_model  # noqa: E402


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Large enough to be kept."""
    shape = word_model.Shape(512, 2048, 4, 2, 64, 6)
    return word_model.write(tmp_path_factory.mktemp("model") / "words.gguf", shape, word_model.eight_bits)


def logits(model):
    with model, model.session() as session:
        return session.read_logits("the tide")


def test_the_second_load_maps_what_the_first_has_kept(words, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plain = kvtide.Model.load(words, cache=False)
    assert (plain.packed.file, plain.packed.made, plain.packed.nbytes, plain.packed.notes) == (None, False, 0, [])
    assert not list(tmp_path.iterdir())
    wanted = logits(plain)
    for made in (True, False):
        model = kvtide.Model.load(words)
        (file,) = (tmp_path / "kvtide" / "weights").glob("*.packed")
        assert (model.packed.file, model.packed.made, model.packed.nbytes) == (str(file), made, file.stat().st_size)
        np.testing.assert_array_equal(logits(model), wanted)


def test_a_folder_and_a_file_may_be_named(words, tmp_path, caplog):
    assert kvtide.Model.load(words, cache=tmp_path / "a").packed.made
    (file,) = (tmp_path / "a").glob("*.packed")
    model = kvtide.Model.load(words, cache=False, packed=file)
    assert model.packed.file == str(file)
    assert not caplog.messages
    model.close()
    file.write_bytes(b"something else")
    with caplog.at_level(logging.WARNING, "kvtide"):
        model = kvtide.Model.load(words, cache=False, packed=file)
    assert caplog.messages == model.packed.notes
    assert model.packed.file is None and str(file) in model.packed.notes[0] and "is not used" in model.packed.notes[0]


def test_what_does_not_fit_is_not_kept(words, tmp_path):
    model = kvtide.Model.load(words, cache=tmp_path, cache_limit="1M")
    assert model.packed.file is None
    assert "the limit of the cache is 1 MiB" in model.packed.notes[0]


def test_a_copied_file_and_a_small_model_keep_nothing(words, tiny, tmp_path):
    assert kvtide.Model.load(words, cache=tmp_path, map_file=False).packed.file is None
    assert kvtide.Model.load(tiny, cache=tmp_path).packed.file is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"cache": 3}, {"cache_limit": 0}, {"cache_limit": "many"}, {"packed": 1.5}])
def test_other_values_are_refused(words, options):
    with pytest.raises((TypeError, kvtide.Error)):
        kvtide.Model.load(words, **options)
