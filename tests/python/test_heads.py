"""Which heads of a model copy from the past: known, measured, told by a file; and what a budget makes of it."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest

import kvtide
from kvtide import _native, errors  # noqa: F401  needs the extension

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import word_model  # noqa: E402

TEXT = [(7 * i * i + 3 * i) % 60 for i in range(1000)]
HEADS = [(0.5, 1.0, 1.0)] + [(0.0, 1.0, 1.0)] * 7


def written(folder, heads=HEADS):
    path = folder / "heads.tsv"
    lines = [f"{i // 4}\t{i % 4}\t" + "\t".join(map(str, head)) for i, head in enumerate(heads)]
    path.write_text("\n".join(["layer\thead\tinduction\tshare\toutput_norm", *lines]) + "\n")
    return path


def full_rows(model, **options):
    with model.session(**options) as session:
        session.read(TEXT)
        return session.procedural["rows"]["full"]


def test_a_model_that_nobody_measured_has_heads_alike_and_says_so_once(model, caplog):
    assert full_rows(model, kv_budget="1M") == 0
    assert full_rows(model, kv_budget="1M") == 0
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "model.measure_heads()" in caplog.text


def test_even_heads_are_what_was_asked_for(model, caplog):
    assert full_rows(model, procedural={"budget": "1M", "heads": "even"}) == 0
    assert not caplog.records


def test_a_table_comes_from_a_file_as_the_program_writes_it(model, tmp_path, caplog):
    window = {"window": 48, "block": 16}
    told = full_rows(model, procedural={**window, "heads": HEADS, "kv_heads": 4})
    assert told > 0 and told == full_rows(model, procedural={**window, "heads": written(tmp_path)})
    assert told == full_rows(model, procedural={**window, "heads": str(written(tmp_path))})
    assert not caplog.records


@pytest.mark.parametrize(("heads", "error"), [("nowhere.tsv", errors.NotFoundError), ("atuo", errors.NotFoundError), (7, errors.InvalidArgumentError)])
def test_what_is_no_table_is_refused(model, heads, error):
    with pytest.raises(error):
        model.session(procedural={"heads": heads})


def test_a_head_whose_rows_are_worth_nothing_does_not_copy(model, tmp_path):
    window = {"window": 48, "block": 16, "kv_heads": 4}
    worthless = [(*head, 0.0) for head in HEADS]
    assert full_rows(model, procedural={**window, "heads": worthless}) == 0
    assert full_rows(model, procedural={**window, "heads": [(*head, 1.0) for head in HEADS]}) > 0
    path = written(tmp_path, worthless)
    path.write_text(path.read_text().replace("output_norm", "output_norm\tworth"))
    assert full_rows(model, procedural={"window": 48, "block": 16, "heads": path}) == 0
    with pytest.raises(errors.InvalidArgumentError, match="worth may be left out"):
        model.session(procedural={**window, "heads": [(0.5, 1.0)] * 8})


def test_a_damaged_table_is_refused_with_its_line(model, tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("0.5", "much"))
    with pytest.raises(errors.BadFormatError, match="line 2"):
        model.session(procedural={"heads": path})


def test_what_was_measured_is_remembered_in_the_cache_folder(tmp_path, caplog):
    words = word_model.write(tmp_path / "words.gguf")
    with kvtide.Model.load(words, cache=tmp_path / "cache") as model:
        seen = []
        kv_heads, heads = model.measure_heads(progress=lambda done, of: seen.append(done / of))
        assert kv_heads == 1 and len(heads) == 2
        assert seen == sorted(seen) and seen[-1] == 1
        with model.session(procedural={"budget": "1M", "heads": heads, "kv_heads": kv_heads}) as session:
            session.read(TEXT)
            wanted = session.logits
    with kvtide.Model.load(words, cache=tmp_path / "cache") as model, model.session(kv_budget="1M") as session:
        session.read(TEXT)
        np.testing.assert_array_equal(session.logits, wanted)
    assert not caplog.records


def test_measuring_can_be_stopped(tmp_path):
    with kvtide.Model.load(word_model.write(tmp_path / "words.gguf"), cache=tmp_path) as model:
        with pytest.raises(errors.CancelledError):
            model.measure_heads(progress=lambda done, of: False)
        with pytest.raises(ZeroDivisionError):
            model.measure_heads(progress=lambda done, of: 1 // 0)
        assert not list(tmp_path.glob("heads-*"))


def test_a_model_that_cannot_be_measured_says_why(model):
    with pytest.raises(errors.UnsupportedError, match="plain words"):
        model.measure_heads()


def test_the_context_of_a_budget_is_the_length_that_is_expected(model):
    def logits(**options):
        with model.session(**options) as session:
            session.read(TEXT)
            return session.logits

    same = logits(procedural={"budget": "1M", "budget_for": 1200, "heads": "even"})
    np.testing.assert_array_equal(same, logits(kv_budget="1M", context=1200, procedural={"heads": "even"}))
