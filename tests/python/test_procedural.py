"""A procedural memory from Python: budgets, what it holds, forks and files."""

import json

import numpy as np
import pytest

from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors

MEMORY = {"sinks": 2, "window": 48, "block": 16, "rows": 6, "summaries": 2, "levels": 1, "full_rows": 0}
TEXT = [(7 * i * i + 3 * i) % 60 for i in range(300)]


def header(path):
    """The JSON header of a snapshot: docs/snapshot_format.md."""
    data = path.read_bytes()
    return json.loads(data[24 : 24 + int.from_bytes(data[16:24], "little")])


def test_it_reads_more_than_it_holds_and_says_what_it_did(model):
    with model.session(procedural=MEMORY) as session:
        session.read(TEXT)
        found = session.procedural
        assert session.position == 300
        # Blocks of 16 leave whenever 48 + 16 positions are exact: (300 - 48) // 16.
        assert found["seals"] == 15
        assert found["rows"]["window"] > 0 and found["rows"]["summaries"]
        assert session.nbytes <= found["kv_bytes_peak"]
        assert session.state.rows < 300


def test_rows_are_seen_where_they_lie_side_by_side(model):
    with model.session(procedural=MEMORY) as session, model.session() as full:
        session.read(TEXT[:50])
        full.read(TEXT[:50])
        for layer in range(len(session.state.layers)):
            for rows_of in (lambda state, **how: state.keys(layer, **how), lambda state, **how: state.values(layer, **how)):
                wanted = rows_of(full.state)
                assert np.array_equal(rows_of(session.state, copy=False), wanted)
                assert np.array_equal(rows_of(session.state, copy=True), wanted)


def test_chunks_and_forks_change_no_bit(model):
    with model.session(procedural=MEMORY) as whole, model.session(procedural=MEMORY, prefill_chunk=7) as parts:
        whole.read(TEXT)
        parts.read(TEXT[:150])
        with parts.fork() as fork:
            fork.read(TEXT[150:])
            assert np.array_equal(whole.logits, fork.logits)
        parts.read(TEXT[150:])
        assert np.array_equal(whole.logits, parts.logits)


def test_a_file_brings_the_memory_with_it(model, tmp_path):
    path = tmp_path / "text.kv"
    with model.session(procedural=MEMORY) as first, model.session() as second:
        first.read(TEXT[:200])
        first.save(path)
        second.load(path)
        first.read(TEXT[200:])
        second.read(TEXT[200:])
        assert np.array_equal(first.logits, second.logits)
        assert second.procedural["seals"] == first.procedural["seals"]


def test_other_sessions_have_none_and_cannot_pin(model):
    with model.session() as session:
        assert session.procedural is None
        with pytest.raises(errors.InvalidArgumentError, match="procedural"):
            session.pin(0, 4)


def test_pinned_positions_stay_and_are_refused_once_summarised(model):
    with model.session(procedural=MEMORY) as session:
        session.pin(5, 9)
        session.read(TEXT)
        with pytest.raises(errors.InvalidArgumentError, match="summarised"):
            session.pin(20, 30)


# Every field of ProceduralOptions, each with a value that is not its default.
EVERY_FIELD = {
    "budget": 8 << 20,
    "budget_for": 400,
    "sinks": 3,
    "window": 48,
    "block": 16,
    "rows": 6,
    "summaries": 2,
    "levels": 1,
    "full_rows": 64,
    "full_type": "f16",
    "summary": "cluster",
    "score": "novelty",
    "kv_heads": 4,
    "heads": [(0.5, 1.0, 1.0)] + [(0.0, 1.0, 1.0)] * 7,
    "full_from": 0.25,
    "row_type": "f16",
    "exact_first": False,
    "far": "clamp",
    "first_layer": 0,
    "last_layer": 0,
    "pins": [(5, 9), (20, 24)],
    "level_rows": 30,
    "shed_below": 1e-6,
    "decay": 0.25,
    "retention": 0.5,
    "adapt": "drift",
}


def test_every_field_is_taken_and_stands_in_the_file(model, tmp_path):
    with model.session(procedural=EVERY_FIELD) as session:
        session.read(TEXT)
        session.save(tmp_path / "text.kv")
    told = header(tmp_path / "text.kv")["spec"]["procedural"]
    for key, value in EVERY_FIELD.items():
        if key in ("kv_heads", "heads", "exact_first"):
            continue  # files tell what they led to
        wanted = [list(pin) for pin in value] if key == "pins" else value
        assert told[key] == pytest.approx(wanted) if isinstance(wanted, float) else told[key] == wanted, key
    assert [len(layer) for layer in told["heads"]] == [4, 4]
    with pytest.raises(errors.InvalidArgumentError, match="spill"):
        model.session(procedural={**EVERY_FIELD, "spill": 3})


def test_a_budget_comes_with_the_file_and_holds(model, tmp_path):
    growing = {**MEMORY, "levels": 0, "budget_for": 200}
    with pytest.raises(errors.InvalidArgumentError) as refused:
        model.session(procedural={**growing, "budget": 1})
    least = str(refused.value).rstrip(".").split()[-1]  # "370K"
    with model.session(procedural={**growing, "budget": least}) as first, model.session() as second:
        first.read(TEXT[:200])
        first.save(tmp_path / "text.kv")
        second.load(tmp_path / "text.kv")
        for session in (first, second):
            with pytest.raises(errors.ContextFullError, match="planned for 200 tokens"):
                session.read(TEXT[200:])
            assert session.position == 200


def test_the_type_of_full_rows_is_chosen_or_refused(model):
    """Heads of 8 elements are kept as f16; four bits need blocks of 32."""
    every = {**MEMORY, "kv_heads": 4, "heads": [(1.0, 1.0, 1.0)] * 8}
    with model.session(procedural=every) as usual, model.session(procedural={**every, "full_type": "f16"}) as half:
        usual.read(TEXT)
        half.read(TEXT)
        assert half.procedural["rows"]["full"] > 0
        assert np.array_equal(usual.logits, half.logits)
    with pytest.raises(errors.InvalidArgumentError, match="q4_0 need heads of a multiple of 32"):
        model.session(procedural={**every, "full_type": "q4_0"})


@pytest.mark.parametrize(
    "wrong", [{"full_type": "q2_k"}, {"windows": 3}, {"window": "many"}, {"summary": "best"}, {"budget": 10}, {"heads": [(1.0, 2.0)]}, {"block": 16, "rows": 99}]
)
def test_options_that_make_no_sense_are_refused(model, wrong):
    with pytest.raises(errors.InvalidArgumentError):
        model.session(procedural=wrong)
