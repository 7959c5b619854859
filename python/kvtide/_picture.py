"""Pictures of a KV memory: stacked bars, as SVG for notebooks and with matplotlib."""

from __future__ import annotations

import html
import importlib
from typing import Any, NamedTuple

from kvtide._arguments import size_text

_WIDTH = 560
_HEIGHT = 22
_ROW = 62  # a caption, a bar and a legend


class Part(NamedTuple):
    """A piece of a bar. ``label`` says its size in words."""

    name: str
    size: float
    label: str
    color: str


class Bar(NamedTuple):
    caption: str
    parts: tuple[Part, ...]


_HELD, _SHARED, _FREE = "#2a6f97", "#89c2d9", "#e5e7eb"
_KINDS = {  # of rows in a procedural memory: its name there, in words, color
    "sinks": ("first tokens", "#1d3557"),
    "window": ("newest tokens", "#2a6f97"),
    "full": ("heads that keep all", "#e76f51"),
    "outliers": ("telling tokens", "#e9c46a"),
    "summaries": ("summaries", "#8ab17d"),
}


def bytes_bar(held: int, shared: int, limit: int, what: str) -> Bar:
    """Bytes held, those of them that forks share, and what is left of a limit (0: there is none)."""
    own = max(0, held - shared)
    parts = [Part("held", own, size_text(own), _HELD)]
    if shared:
        parts.append(Part("shared with forks", shared, size_text(shared), _SHARED))
    if limit > held:
        parts.append(Part("free", limit - held, size_text(limit - held), _FREE))
    of = f" of {size_text(limit)}{what}" if limit else ""
    return Bar(f"KV memory: {size_text(held)}{of}", tuple(parts))


def rows_bar(rows: dict[str, Any]) -> Bar:
    """Rows of a procedural memory by kind, as ``Session.procedural`` counts them."""
    parts = []
    for kind, (name, color) in _KINDS.items():
        count = rows[kind]
        count = sum(count) if isinstance(count, (list, tuple)) else count
        if count:
            parts.append(Part(name, count, f"{count:,} rows", color))
    return Bar("rows by purpose: over all layers and heads", tuple(parts))


def tokens_bar(read: int, held: int, room: int) -> Bar:
    """Tokens held, those forgotten, and how many still fit."""
    parts = [Part("held", held, f"{held:,} tokens", _HELD)]
    if read > held:
        parts.insert(0, Part("forgotten", read - held, f"{read - held:,} tokens", "#d9a5a0"))
    if room > 0:
        parts.append(Part("free", room, f"{room:,} tokens", _FREE))
    return Bar(f"text: {read:,} tokens read", tuple(parts))


def as_html(title: str, bars: list[Bar]) -> str:
    """A heading and the bars, as a fragment that needs nothing beside it."""
    rows = "".join(_bar_svg(bar, index * _ROW) for index, bar in enumerate(bars))
    return (
        f'<div style="font-family: sans-serif"><code>{html.escape(title)}</code><br>'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{len(bars) * _ROW}" role="img" '
        f'font-family="sans-serif" font-size="12">{rows}</svg></div>'
    )


def _bar_svg(bar: Bar, top: int) -> str:
    total = sum(part.size for part in bar.parts) or 1.0
    shown = [f'<text x="0" y="{top + 14}" fill="currentColor">{html.escape(bar.caption)}</text>']
    x, legend = 0.0, []
    for part in bar.parts:
        width = part.size / total * _WIDTH
        tip = html.escape(f"{part.name}: {part.label}")
        shown.append(
            f'<rect x="{x:.1f}" y="{top + 20}" width="{width:.1f}" height="{_HEIGHT}" fill="{part.color}">'
            f"<title>{tip}</title></rect>"
        )
        legend.append(f'<tspan fill="{part.color}">&#9632;</tspan> <tspan fill="currentColor">{tip}</tspan> &#160;')
        x += width
    shown.append(f'<text x="0" y="{top + 20 + _HEIGHT + 14}" font-size="10">{"".join(legend)}</text>')
    return "".join(shown)


def plotted(bars: list[Bar], title: str, ax: Any) -> Any:
    """The bars in matplotlib axes; a new figure when none are given. Every bar is drawn as shares of its whole."""
    if ax is None:
        ax = _pyplot().subplots(figsize=(9, 0.8 + 0.8 * len(bars)), layout="constrained")[1]
    for y, bar in enumerate(bars):
        total = sum(part.size for part in bar.parts) or 1.0
        left = 0.0
        for part in bar.parts:
            share = 100.0 * part.size / total
            ax.barh(y, share, left=left, color=part.color, label=f"{part.name}: {part.label}")
            left += share
    ax.set_yticks(range(len(bars)), [bar.caption.replace(": ", "\n") for bar in bars])
    ax.set_xlim(0, 100)
    ax.invert_yaxis()
    ax.set_xlabel("percent")
    ax.set_title(title)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    return ax


def _pyplot() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "plot() draws with matplotlib, which is not installed: pip install matplotlib", name=error.name
        ) from None
