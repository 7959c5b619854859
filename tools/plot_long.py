#!/usr/bin/env python3
"""Draws what tools/measure_long.py measured: rows by tier, memory and reading speed against tokens, as an SVG or PNG.

    tools/plot_long.py MEASURED.json PICTURE.svg
"""
import json
import sys
from pathlib import Path

from model_titles import title_of
from pictures import plt, save

MIB = 1 << 20
TIERS = (("full", "of heads that copy", "#1f5fa8"), ("outliers", "exact rows of blocks", "#d9822b"),
         ("summaries", "summaries", "#4b8b3b"), ("window", "window and sinks", "#999999"))  # fmt: skip


def rows_of(seal, tier):
    rows = seal["rows"]
    if tier == "summaries":
        return sum(rows["summaries"])
    return rows["window"] + rows["sinks"] if tier == "window" else rows[tier]


def speeds(read, step):
    """Tokens per second over every `step` tokens."""
    points, (start, first) = [], read[0]
    for moment, tokens in read[1:]:
        if tokens - first >= step:
            points.append(((tokens + first) / 2, (tokens - first) / (moment - start)))
            start, first = moment, tokens
    return points


def draw(column, result):
    rows, memory, speed = column
    seals = result["seals"]
    at = [seal["position"] for seal in seals]
    for tier, label, colour in TIERS:
        rows.plot(at, [max(1, rows_of(seal, tier)) for seal in seals], color=colour, linewidth=1.2, label=label)
    rows.set_yscale("log")
    rows.set_title(f"{title_of(result['model'])}, budget {result['budget'] / MIB:.0f} MiB", fontsize=10)
    memory.plot(at, [seal["bytes"] / MIB for seal in seals], color="#1f5fa8", linewidth=1.2, label="KV memory held")
    sampled = result["memory_by_position"]
    memory.plot([s[0] for s in sampled], [s[1] / MIB for s in sampled], color="#8e5ea2", linewidth=1.2, label="of the process, weights apart")
    memory.axhline(result["budget"] / MIB, color="#b03a2e", linestyle=":", linewidth=1.2)
    memory.text(0, result["budget"] / MIB, " budget", color="#b03a2e", fontsize=8, va="bottom")
    memory.set_ylim(0, None)
    points = speeds(result["read_by_second"], result["tokens"] / 60)
    speed.plot([p[0] for p in points], [p[1] for p in points], color="#1f5fa8", linewidth=1.2)
    speed.set_ylim(0, None)
    speed.set_xlabel("tokens read")
    for axes in column:
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def main():
    results = json.loads(Path(sys.argv[1]).read_text())
    figure, grid = plt.subplots(3, len(results), figsize=(max(7, 5 * len(results)), 7), sharex="col", squeeze=False,
                                gridspec_kw={"height_ratios": [3, 2, 2]})  # fmt: skip
    for index, result in enumerate(results):
        draw([grid[line][index] for line in range(3)], result)
    for line, label in enumerate(("rows, all heads", "MiB", "tokens read per second")):
        grid[line][0].set_ylabel(label)
    grid[0][0].legend(frameon=False, fontsize=8)
    grid[1][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    save(figure, sys.argv[2])


if __name__ == "__main__":
    main()
