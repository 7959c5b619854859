"""Draws what tools/measure_rolling.py measured: perplexity by depth, streamed and freshly read, as an SVG or PNG.

    tools/plot_rolling.py MEASURED.json PICTURE.svg
"""
import json
import sys
from pathlib import Path

from model_titles import title_of
from pictures import plt, save


def main():
    results = json.loads(Path(sys.argv[1]).read_text())
    figure, rows = plt.subplots(2, len(results), figsize=(5 * len(results), 4.6), sharex=True, squeeze=False,
                                gridspec_kw={"height_ratios": [3, 2]})  # fmt: skip
    for column, result in enumerate(results):
        depths = [(d["first"] + d["last"]) / 2 for d in result["depths"]]
        above, below = rows[0][column], rows[1][column]
        above.plot(depths, [d["fresh"] for d in result["depths"]], color="#999999", linewidth=3, label="read afresh every 4,096 tokens")
        above.plot(depths, [d["stream"] for d in result["depths"]], color="#1f5fa8", linewidth=1, label="one stream of 100,352 tokens")
        above.set_title(f"{title_of(result['model'])}: {result['sinks']} sinks and a window of {result['window']:,}", fontsize=10)
        above.set_ylim(0, None)
        below.plot(depths, [100 * (d["stream"] / d["fresh"] - 1) for d in result["depths"]], color="#1f5fa8", linewidth=1)
        below.axhline(0, color="#999999", linewidth=0.8)
        below.set_ylim(-5, 5)
        below.set_xlabel("depth, tokens")
        for axes in (above, below):
            axes.axvline(result["trained"], color="#b03a2e", linestyle=":", linewidth=1.2)
            axes.spines[["top", "right"]].set_visible(False)
        above.text(result["trained"], above.get_ylim()[1] * 0.04, f" trained for {result['trained']:,}", color="#b03a2e", fontsize=8)
        below.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    rows[0][0].set_ylabel("perplexity")
    rows[1][0].set_ylabel("stream against\nfresh, %")
    rows[0][0].legend(frameon=False, fontsize=8, loc=(0.3, 0.12))
    figure.tight_layout()
    save(figure, sys.argv[2])


if __name__ == "__main__":
    main()
