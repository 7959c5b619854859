#!/usr/bin/env python3
"""Draws what kvtide table measured: what each memory loses and recalls against the bytes it holds, as an SVG or PNG.

    tools/plot_table.py FOLDER/table.json PICTURE.svg

A row of panels for every model and length: the change of perplexity, its course over the quarters of the text, and the copy
test, with the full cache as a grey line.
"""
import argparse
import json
import math
from pathlib import Path

from model_titles import title_of
from pictures import plt, save

MIB = 1 << 20
KINDS = {  # by the beginning of a memory's name: colour, marker, what it is
    "full": ("#777777", "s", "full cache"),
    "window": ("#d9822b", "v", "sinks + window of as many bytes"),
    "plain": ("#8e5ea2", "D", "plain recipe"),
    "": ("#1f5fa8", "o", "procedural memory"),
}


def kind_of(policy):
    return next(kind for kind in KINDS if policy.startswith(kind))


def measured(cell, *names):
    return all(isinstance(cell.get(name), (int, float)) and math.isfinite(cell[name]) for name in names)


def groups_of(cells):
    """Cells of one model and length, the full cache first."""
    groups = {}
    for cell in cells:
        groups.setdefault((cell["model"], cell["ctx"]), []).append(cell)
    return groups


def face_of(policy):
    """Filled where the sizes come from a budget, white where they come from a preset."""
    return KINDS[kind_of(policy)][0] if "budget" in policy or policy.startswith("full") else "white"


def draw_loss(axes, cells):
    for cell in cells:
        if not measured(cell, "kv_bytes", "dppl", "dppl_low", "dppl_high"):
            continue
        colour, marker, _ = KINDS[kind_of(cell["policy"])]
        change, low, high = (100 * cell[name] for name in ("dppl", "dppl_low", "dppl_high"))
        axes.errorbar(cell["kv_bytes"] / MIB, change, yerr=[[max(0, change - low)], [max(0, high - change)]], color=colour,
                      marker=marker, markerfacecolor=face_of(cell["policy"]), markersize=5, elinewidth=1, capsize=2)  # fmt: skip
    axes.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.set_ylabel("change of perplexity, %")
    axes.set_xlabel("KV memory, MiB")


def draw_quarters(axes, cells):
    for cell in cells[1:]:
        names = [f"dppl_q{i}" for i in range(1, 5)]
        if not measured(cell, *names):
            continue
        colour, marker, _ = KINDS[kind_of(cell["policy"])]
        axes.plot([12.5, 37.5, 62.5, 87.5], [100 * cell[name] for name in names], color=colour, marker=marker,
                  markerfacecolor=face_of(cell["policy"]), markersize=4, linewidth=1)  # fmt: skip
    axes.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.set_ylabel("change of perplexity, %")
    axes.set_xlabel("place in the text, %")


def draw_copies(axes, cells):
    for cell in cells[1:]:
        if not measured(cell, "kv_bytes", "copy_nll"):
            continue
        colour, marker, _ = KINDS[kind_of(cell["policy"])]
        axes.plot(cell["kv_bytes"] / MIB, cell["copy_nll"], color=colour, marker=marker, markersize=5,
                  markerfacecolor=face_of(cell["policy"]), linestyle="none")  # fmt: skip
    if measured(cells[0], "copy_nll", "copy_chance"):
        axes.axhline(cells[0]["copy_nll"], color=KINDS["full"][0], linewidth=1, zorder=0)
        axes.axhline(cells[0]["copy_chance"], color="#b03a2e", linewidth=1, linestyle=":", zorder=0)
        for words, name, colour in (("a guess", "copy_chance", "#b03a2e"), ("full cache", "copy_nll", KINDS["full"][0])):
            axes.annotate(words, (1.01, cells[0][name]), xycoords=("axes fraction", "data"), fontsize=7, color=colour, va="center")
    axes.set_ylim(0, 13)
    axes.set_ylabel("copy test, nats per token")
    axes.set_xlabel("KV memory, MiB")


def draw(groups, picture):
    figure, rows = plt.subplots(len(groups), 3, figsize=(11, 3.1 * len(groups) + 0.5), squeeze=False)
    for (loss, quarters, copies), ((model, context), cells) in zip(rows, groups.items()):
        draw_loss(loss, cells)
        draw_quarters(quarters, cells)
        draw_copies(copies, cells)
        loss.set_title(f"{title_of(model)}, {context:,} tokens", fontsize=9, loc="left")
        for axes in (loss, quarters, copies):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
    handles = [plt.Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=5, label=words)
               for colour, marker, words in KINDS.values()]  # fmt: skip
    handles.append(plt.Line2D([], [], color="#111111", marker="o", markerfacecolor="white", linestyle="none", markersize=5,
                              label="hollow: sizes of a preset"))  # fmt: skip
    figure.legend(handles=handles, loc="lower center", ncol=len(handles), frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.35 / figure.get_figheight(), 1, 1))
    save(figure, picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    groups = groups_of(json.loads(arguments.table.read_text("utf-8"))["cells"])
    if not groups:
        parser.error(f"{arguments.table}: holds no cells")
    draw(groups, arguments.picture)


if __name__ == "__main__":
    main()
