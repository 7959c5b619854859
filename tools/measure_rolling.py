#!/usr/bin/env python3
"""Reads a long text with a rolling memory and checks what that promises: constant memory, no drift.

    tools/measure_rolling.py --kvtide build/kvtide -f BOOK -m MODEL [-m MODEL] [--json F.json] [--markdown F.md]

Each model reads the text once as a stream (`ppl --stream --overflow rolling`), while the resident set of the process is
sampled. The same tokens are then read in chunks that each start from an empty memory with the same window (`ppl -c CHUNK`):
what a depth is compared with, because a book is harder in some places than in others. The second half of every chunk is
scored by both. Fails when the resident set moves by more than 1 MiB after the window is full, when the stream is worse than
fresh readings beyond the trained context by more than 2%, or when it gets worse with depth by more than 2% per 100,000 tokens.
"""
import argparse
import json
import math
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from resident import resident

MIB = 1 << 20
MOST_RSS_SWING = 1 * MIB
MOST_DRIFT = 0.02


def stream(arguments, model):
    """The scores by depth, and the resident sets from the first progress line that stands behind the full window."""
    full = arguments.sinks + arguments.window + 2 * arguments.prefill_chunk
    command = [arguments.kvtide, "ppl", "-m", model, "-f", arguments.file, "--stream", "-c", str(arguments.tokens), "--json",
               "--bucket", str(arguments.chunk // 2), *policy(arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    done, samples = [0], []

    def listen():
        for line in process.stderr:
            if found := re.match(r"scoring .* ([\d,]+)/", line):
                done[0] = int(found[1].replace(",", ""))
            elif line.startswith("kvtide: "):
                sys.stderr.write(line)

    listener = threading.Thread(target=listen)
    listener.start()
    output = []
    reader = threading.Thread(target=lambda: output.append(process.stdout.read()))
    reader.start()
    while process.poll() is None:
        if done[0] >= full and (rss := resident(process.pid)):
            samples.append((done[0], rss))
        time.sleep(0.05)
    reader.join()
    listener.join()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    # A process that is ending has given pages back already.
    return json.loads(output[0]), samples[:-5]


def fresh(arguments, model):
    """ln of the perplexity of the second half of every chunk, each read from an empty memory."""
    command = [arguments.kvtide, "ppl", "-m", model, "-f", arguments.file, "-c", str(arguments.chunk), "--chunks",
               str(arguments.tokens // arguments.chunk), "--json", *policy(arguments)]
    running = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)["chunks"]
    sums = [0.0] + [(i + 1) * math.log(ppl) for i, ppl in enumerate(running)]  # every chunk scores as many tokens
    return [after - before for before, after in zip(sums, sums[1:])]


def policy(arguments):
    return ["--overflow", "rolling", "--kv-sinks", str(arguments.sinks), "--kv-window", str(arguments.window), "--prefill-chunk",
            str(arguments.prefill_chunk)]


def slope(points):
    """Of a straight line through (x, y), by least squares."""
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def measure(arguments, model):
    info = json.loads(subprocess.run([arguments.kvtide, "inspect", model, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    trained = info["metadata"][f"{info['architecture']}.context_length"]
    score, rss = stream(arguments, model)
    apart = fresh(arguments, model)
    depths = []
    for index, loss in enumerate(apart):
        bucket = score["buckets"][2 * index + 1]
        depths.append({"first": bucket["first"], "last": bucket["last"], "stream": bucket["ppl"], "fresh": math.exp(loss)})
    ratios = [((d["first"] + d["last"]) / 2, math.log(d["stream"] / d["fresh"])) for d in depths]
    beyond = [y for x, y in ratios if x > trained]
    return {"model": Path(model).stem, "trained": trained, "tokens": score["tokens_scored"] + 1,
            "sinks": arguments.sinks, "window": arguments.window, "seconds": score["seconds"], "ppl": score["ppl"],
            "rss_samples": len(rss), "rss_least": min(r for _, r in rss), "rss_most": max(r for _, r in rss),
            "beyond": math.exp(sum(beyond) / len(beyond)), "per_100k": slope(ratios) * 1e5, "depths": depths, "rss": rss[::20]}  # fmt: skip


def failures(result):
    swing = result["rss_most"] - result["rss_least"]
    if result["rss_samples"] < 20:
        yield f"only {result['rss_samples']} samples of the resident set behind the full window: the text is too short"
    if swing > MOST_RSS_SWING:
        yield f"the resident set moved by {swing / MIB:.2f} MiB after the window was full"
    if result["beyond"] > 1 + MOST_DRIFT:
        yield f"beyond the trained context the stream is {result['beyond'] - 1:.1%} worse than fresh readings"
    if result["per_100k"] > MOST_DRIFT:
        yield f"the stream gets {result['per_100k']:.1%} worse per 100,000 tokens"


def table(results):
    lines = ["| model | sinks + window | tokens | RSS behind the full window, MiB (swing) | perplexity | against fresh readings, beyond "
             "the trained context | change per 100,000 tokens | seconds |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for r in results:
        lines.append(f"| {r['model']} | {r['sinks']} + {r['window']:,} | {r['tokens']:,} | {r['rss_most'] / MIB:.1f} "
                     f"({(r['rss_most'] - r['rss_least']) / MIB:.2f}) | {r['ppl']:.2f} | {r['beyond'] - 1:+.2%} beyond {r['trained']:,} | "
                     f"{r['per_100k']:+.2%} | {r['seconds']:.0f} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("-f", "--file", required=True, help="a text of more tokens than are read")
    parser.add_argument("--tokens", type=int, default=100352, help="a multiple of the chunk [%(default)s]")
    parser.add_argument("--chunk", type=int, default=4096, help="tokens of a fresh reading [%(default)s]")
    parser.add_argument("--sinks", type=int, default=4)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--prefill-chunk", type=int, default=256)
    parser.add_argument("--json", help="where to write everything that was measured")
    parser.add_argument("--markdown", help="where to write the table, too")
    arguments = parser.parse_args()
    results = [measure(arguments, model) for model in arguments.model]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    print(table(results), end="")
    if arguments.markdown:
        Path(arguments.markdown).write_text(table(results))
    wrong = [f"{result['model']}: {why}" for result in results for why in failures(result)]
    print("\n".join(f"FAILED {why}" for why in wrong) or "constant memory, no drift: fine")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
