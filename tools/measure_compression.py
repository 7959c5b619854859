#!/usr/bin/env python3
"""What procedural memories lose against the full cache, over windows of texts.

    tools/measure_compression.py --kvtide build/kvtide -m MODEL -f TEXT:12,24,48 [-f TEXT:30] [--tokens 4096]
      [--skip 1024] [--jobs 2] [--json F.json] [--markdown F.md] [--set rows|bytes|parts] [--policy "NAME=FLAGS" ...]

Numbers behind a text are percents of its bytes at which windows begin. Every policy reads each window as a stream beside the
full cache (`ppl --stream --against full --exact`); targets before --skip, where all memories still hold everything, are left
out. Means over windows with intervals of 95% (Student's t over the windows; dPPL is paired, token by token); "gap closed" is
against the policy WINDOW alone; bytes are those held at the end, of the full f16 cache. --set: what is counted in rows, what is
counted in bytes, or every part of the memory alone and together; policies that are named replace it. --jobs runs share the
machine's threads; results do not depend on it.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WINDOW = "sinks + window of 512"
ALONE = {WINDOW: "--overflow rolling --kv-window 512"}
EVEN, CLUSTER, NOVELTY = "--kv-heads even", "--kv-summary cluster", "--kv-score novelty"
PLAIN = f"{CLUSTER} {NOVELTY} {EVEN}"  # heads all alike, clusters with ln n, outliers by the key alone
SMALL = "-ctk q8_0 -ctv q8_0 --kv-full-type q4_0"
SETS = {
    "rows": ALONE | {
        "window of the rows of 8x": "--overflow rolling --kv-window 960",
        "window of all bytes of 8x": "--overflow rolling --kv-window 1307",
        "plain recipe, 8x": f"--kv-preset minimal {PLAIN}",
        "8x, r = 4 (minimal)": "--kv-preset minimal",
        "8x, r = 8": "--kv-preset minimal --kv-r 8 --kv-salient 24",
        "window of all bytes of 4x": "--overflow rolling --kv-window 1560",
        "plain recipe, 4x": f"--kv-preset balanced {PLAIN}",
        "4x, r = 4 (balanced)": "--kv-preset balanced",
        "4x, r = 8": "--kv-preset balanced --kv-r 8 --kv-salient 56",
    },
    "bytes": ALONE | {
        "1/20": f"--kv-preset minimal --kv-r 8 --kv-salient 24 {SMALL}",
        "1/25": f"--kv-preset minimal --kv-r 4 --kv-salient 12 {SMALL}",
        "plain recipe, 1/20": f"--kv-preset minimal --kv-r 4 --kv-salient 18 {PLAIN} {SMALL}",
        "plain recipe, 1/25": f"--kv-preset minimal --kv-r 4 --kv-salient 13 {PLAIN} {SMALL}",
        "window of all bytes of 1/20": "--overflow rolling --kv-window 1650 -ctk q8_0 -ctv q8_0",
        "window of all bytes of 1/31": "--overflow rolling --kv-window 1541 -ctk q8_0 -ctv q8_0",
    },
    "parts": ALONE | {
        "even, positional, novelty": f"--kv-preset minimal {EVEN} --kv-summary positional {NOVELTY}",
        "even, clusters, novelty": f"--kv-preset minimal {PLAIN}",
        "even, fitted, novelty": f"--kv-preset minimal {EVEN} {NOVELTY}",
        "even, clusters, mixed": f"--kv-preset minimal {EVEN} {CLUSTER}",
        "table, clusters, novelty": f"--kv-preset minimal {CLUSTER} {NOVELTY}",
        "even, fitted, mixed": f"--kv-preset minimal {EVEN}",
        "table, clusters, mixed": f"--kv-preset minimal {CLUSTER}",
        "table, positional, mixed": "--kv-preset minimal --kv-summary positional",
        "table, fitted, novelty": f"--kv-preset minimal {NOVELTY}",
        "table, fitted, mixed": "--kv-preset minimal",
        "even, fitted, 31 of 32 rows": f"--kv-preset minimal {EVEN} --kv-r 31 --kv-salient 1",
        "even, mixed, 31 of 32 rows": f"--kv-preset minimal {EVEN} --kv-r 1 --kv-salient 31",
        "window of as many rows": "--overflow rolling --kv-window 960",
    },
}  # fmt: skip


def score(arguments, flags, text):
    """ln PPL, change of ln PPL, KL and agreement behind --skip, means over targets."""
    command = [arguments.kvtide, "ppl", "-m", arguments.model, "-f", text, "--stream", "-c", str(arguments.tokens),
               "--bucket", str(arguments.skip), "--against", "full", "--exact", "--json",
               "-t", str(max(1, (os.cpu_count() or 1) // arguments.jobs)), *flags.split()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    buckets = [b for b in report["buckets"] if b["first"] >= arguments.skip]
    total = sum(b["tokens_scored"] for b in buckets)

    def mean(of):
        return sum(of(b) * b["tokens_scored"] for b in buckets) / total

    return {
        "change": mean(lambda b: math.log(b["ppl"] / b["full_ppl"])),
        "kl": mean(lambda b: b["kl"]),
        "agreement": mean(lambda b: b["agreement"]),
        "bytes": report["kv_bytes"] / report["full_kv_bytes"],
    }


def half_interval(values):
    """Half of the 95% interval of a mean over windows: Student's t for few of them."""
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}.get(len(values), 2.2)
    return t * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def windows(arguments, folder):
    """The texts to read: (name, percent, path), cut behind the first blank."""
    for given in arguments.file:
        path, _, places = given.rpartition(":")
        text = Path(path).read_bytes()
        for place in map(float, places.split(",")):
            start = int(place / 100 * len(text))
            cut = text[start : start + 12 * arguments.tokens].decode("utf-8", "ignore")
            window = Path(folder) / f"{Path(path).stem}-{place:g}.txt"
            window.write_text(cut[cut.find(" ") :])
            yield Path(path).name, place, window


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvtide", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--file", action="append", required=True, help="TEXT:PERCENT,PERCENT")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--skip", type=int, default=1024)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--set", choices=SETS, default="rows")
    parser.add_argument("--policy", action="append", help="NAME=FLAGS")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    arguments = parser.parse_args()
    # Names may hold an equals sign; flags begin with dashes.
    split = [p.partition("=--") for p in arguments.policy or []]
    policies = {name: "--" + flags for name, _, flags in split} or SETS[arguments.set]

    found = {name: [] for name in policies}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as jobs:
        cells = [(w, name) for w in windows(arguments, folder) for name in policies]
        for (text, place, _), name, last in jobs.map(lambda c: (*c, score(arguments, policies[c[1]], str(c[0][2]))), cells):
            found[name].append({"text": text, "at": place, **last})
            print(f"{text} {place:g}%  {name:34} dPPL {math.expm1(last['change']):+.2%}  KL {last['kl']:.4f}  "
                  f"top-1 {last['agreement']:.1%}  bytes {last['bytes']:.1%}", flush=True)  # fmt: skip

    table = "| memory | dPPL, mean of windows (smallest to largest) | gap closed | KL | top-1 | bytes |\n|---|---:|---:|---:|---:|---:|\n"
    gap = statistics.mean(s["change"] for s in found[WINDOW]) if WINDOW in found else None
    for name, scores in found.items():
        changes = [s["change"] for s in scores]
        mean = statistics.mean(changes)
        closed = f"{1 - mean / gap:.0%}" if gap else ""
        table += (
            f"| {name} | {math.expm1(mean):+.2%} ± {half_interval(changes):.2%} ({math.expm1(min(changes)):+.2%} to "
            f"{math.expm1(max(changes)):+.2%}) | {closed} | {statistics.mean(s['kl'] for s in scores):.4f} | "
            f"{statistics.mean(s['agreement'] for s in scores):.1%} | {statistics.mean(s['bytes'] for s in scores):.1%} |\n"
        )
    print(table)
    if arguments.markdown:
        Path(arguments.markdown).write_text(table)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
