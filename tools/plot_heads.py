#!/usr/bin/env python3
"""Draws head tables that kvtide heads wrote: how much every head copies from the past, and how many rows it needs, as an SVG or PNG.

    tools/plot_heads.py NAME=HEADS.tsv [NAME=HEADS.tsv ...] PICTURE.svg

A pair of panels for every model, a column for every layer, a square for every KV head. Heads that keep every row are framed;
layers with a window of their own, which nothing compresses, stay white.
"""
import csv
import sys

from matplotlib.patches import Rectangle
from pictures import plt, save

FULL_FROM, WORTH_FROM = 0.15, 0.2  # induction and worth from which a head keeps every row (docs/procedural_memory.md)


def read_table(path):
    """[layer][head] of (induction, share, output norm, worth); None for layers that were not measured."""
    layers = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if int(row["head"]) == 0:
                layers.append([])
            need = tuple(float(row[name]) for name in ("induction", "share", "output_norm"))
            layers[-1].append(None if need == (0.0, 1.0, 1.0) else (*need, float(row.get("worth", 1.0))))
    return layers


def full_heads(layers):
    """Those that copy most, at most two thirds of all: (layer, head)."""
    measured = [(need[0], layer, head, need[3]) for layer, row in enumerate(layers) for head, need in enumerate(row) if need]
    copying = sorted((m[:3] for m in measured if m[0] >= FULL_FROM and m[3] >= WORTH_FROM), reverse=True)
    return [(layer, head) for _, layer, head in copying[: len(measured) * 2 // 3]]


def draw(figure, axes, name, layers, of, title, most):
    heads = len(layers[0])
    cells = [[layers[l][h][of] if layers[l][h] else float("nan") for l in range(len(layers))] for h in range(heads)]
    if of == 1:  # relative to the mean, which is what plan_heads shares out
        known = [c for row in cells for c in row if c == c]
        cells = [[c / (sum(known) / len(known)) for c in row] for row in cells]
    shown = axes.imshow(cells, cmap="Blues", vmin=0, vmax=most, aspect="equal", interpolation="nearest")
    for layer, head in full_heads(layers):
        axes.add_patch(Rectangle((layer - 0.5, head - 0.5), 1, 1, fill=False, edgecolor="#d9822b", linewidth=1.6))
    axes.set_title(f"{name}: {title}", fontsize=9, loc="left")
    axes.set_yticks(range(heads))
    axes.set_xticks(range(0, len(layers), 5))
    axes.set_ylabel("KV head", fontsize=8)
    axes.tick_params(labelsize=7, length=2)
    figure.colorbar(shown, ax=axes, fraction=0.012, pad=0.01).ax.tick_params(labelsize=7)


def main():
    *tables, picture = sys.argv[1:]
    figure, panels = plt.subplots(2 * len(tables), 1, figsize=(8, 1.55 * 2 * len(tables)), squeeze=False)
    for i, given in enumerate(tables):
        name, _, path = given.partition("=")
        layers = read_table(path)
        draw(figure, panels[2 * i][0], name, layers, 0, "attention that goes back to a first copy (framed: keeps every row)", 0.6)
        draw(figure, panels[2 * i + 1][0], name, layers, 1, "share of the most telling rows, of the mean", 3.0)
    panels[-1][0].set_xlabel("layer", fontsize=8)
    figure.tight_layout()
    save(figure, picture)


if __name__ == "__main__":
    main()
