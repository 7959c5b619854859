"""Pictures of a memory in notebooks and with matplotlib."""

import sys
import types
import xml.etree.ElementTree as ElementTree

import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension

TEXT = [(7 * i * i + 3 * i) % 60 for i in range(300)]
PROCEDURAL = {"sinks": 2, "window": 48, "block": 16, "rows": 6, "summaries": 2, "levels": 1, "full_rows": 0}


def words(shown):
    """The text of a fragment, which must be well formed."""
    return "".join(ElementTree.fromstring(shown.replace("<br>", "<br/>")).itertext())


def test_a_session_shows_bytes_and_tokens(model):
    with model.session() as session:
        session.read(TEXT[:100])
        shown = words(session._repr_html_())
        assert repr(session) in shown and "100 tokens read" in shown and "free" in shown
        assert "shared" not in shown
        with session.fork() as fork:
            assert "shared with forks" in words(fork._repr_html_())
        assert "156 tokens" in words(session.state._repr_html_())
        assert "held" in words(session.memory._repr_html_())
    assert words(session._repr_html_()) == repr(session)
    assert "closed" in words(kvtide.State._wrap(closed_state(model))._repr_html_())


def closed_state(model):
    session = model.session()
    state = _native.State.of(session._native)
    session.close()
    return state


def test_a_window_shows_what_was_forgotten(model):
    with model.session(rolling=(4, 60)) as session:
        session.read(TEXT)
        assert "forgotten" in words(session._repr_html_())


def test_a_budget_shows_what_its_rows_are_for(model):
    with model.session(procedural=PROCEDURAL) as session:
        session.read(TEXT)
        shown = words(session._repr_html_())
        rows = session.procedural["rows"]
        assert "newest tokens" in shown and f"{rows['outliers']:,} rows" in shown and "summaries" in shown
    with model.session(kv_budget="1M") as session:
        session.read(TEXT)
        assert "of 1.0 MiB (the budget)" in words(session._repr_html_())
        assert "of 1.0 MiB (the budget)" in words(session.fork()._repr_html_())


def test_a_session_that_computes_can_be_shown(model):
    shown = []
    with model.session(procedural=PROCEDURAL) as session:
        session.read(TEXT, progress=lambda *_: shown.append(words(session._repr_html_())))
        assert "busy" in shown[0] and not session.busy


def test_the_memory_is_numbers_as_before(session):
    session.read("ab")
    use = session.memory
    weights, kv, scratch = use
    assert use == (weights, kv, scratch) == kvtide.MemoryUse(weights, kv, scratch) and use.kv == kv
    assert repr(use) == f"MemoryUse(weights={weights}, kv={kv}, scratch={scratch})"
    assert "held" in words(kvtide.MemoryUse(1, 2, 3)._repr_html_())


class Axes:
    def __init__(self):
        self.bars = []

    def barh(self, y, width, left, color, label):
        self.bars.append((y, left, width, label))

    def __getattr__(self, name):
        return lambda *args, **options: None


def test_plot_draws_bars_into_axes(model):
    with model.session(procedural=PROCEDURAL) as session:
        session.read(TEXT)
        axes = Axes()
        assert session.memory.plot(ax=axes) is axes
    for y in (0, 1):
        widths = [width for row, _, width, _ in axes.bars if row == y]
        assert sum(widths) == pytest.approx(100)


def test_plot_makes_a_figure_with_matplotlib(session):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    session.read("ab")
    axes = session.memory.plot()
    assert axes.get_title().startswith("KV memory of ")
    pyplot.close("all")


def test_plot_without_matplotlib_says_what_to_do(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", types.ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        session.memory.plot()
