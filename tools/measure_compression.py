#!/usr/bin/env python3
"""What procedural memories lose against the full cache, over windows of texts that nothing was chosen on.

    tools/measure_compression.py --kvtide build/kvtide -m MODEL -f TEXT:12,24,48 [-f TEXT:30] [--tokens 4096]
      [--skip 1024] [--json F.json] [--markdown F.md] [--policy "NAME=FLAGS" ...]

Numbers behind a text are percents of its bytes at which windows begin. Every policy reads each window as a stream beside the
full cache (`ppl --stream --against full --exact`); targets before --skip, where all memories still hold everything, are left
out. Means over windows; "gap closed" is against --kv-window 512 alone. Policies that are named replace the usual ones.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WINDOW = "sinks + window of 512"
USUAL = {
    WINDOW: "--overflow rolling --kv-sinks 4 --kv-window 512",
    "longer window of the rows of 8x": "--overflow rolling --kv-sinks 4 --kv-window 960",
    "plain recipe, 8x": "--kv-preset minimal --kv-summary cluster --kv-score novelty --kv-heads even",
    "8x, r = 4 (minimal)": "--kv-preset minimal",
    "8x, r = 8": "--kv-preset minimal --kv-r 8 --kv-salient 24",
    "4x, r = 4 (balanced)": "--kv-preset balanced",
    "4x, r = 8": "--kv-preset balanced --kv-r 8 --kv-salient 56",
}


def score(arguments, flags, text):
    """ln PPL, change of ln PPL, KL and agreement behind --skip, means over targets."""
    command = [arguments.kvtide, "ppl", "-m", arguments.model, "-f", text, "--stream", "-c", str(arguments.tokens),
               "--bucket", str(arguments.skip), "--against", "full", "--exact", "--json", *flags.split()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    buckets = [b for b in json.loads(done.stdout)["buckets"] if b["first"] >= arguments.skip]
    total = sum(b["tokens_scored"] for b in buckets)

    def mean(of):
        return sum(of(b) * b["tokens_scored"] for b in buckets) / total

    return {
        "change": mean(lambda b: math.log(b["ppl"] / b["full_ppl"])),
        "kl": mean(lambda b: b["kl"]),
        "agreement": mean(lambda b: b["agreement"]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvtide", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--file", action="append", required=True, help="TEXT:PERCENT,PERCENT")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--skip", type=int, default=1024)
    parser.add_argument("--policy", action="append", help="NAME=FLAGS")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    arguments = parser.parse_args()
    # Names may hold an equals sign; flags begin with dashes.
    split = [p.partition("=--") for p in arguments.policy or []]
    policies = {name: "--" + flags for name, _, flags in split} or USUAL

    found = {name: [] for name in policies}
    for given in arguments.file:
        path, _, places = given.rpartition(":")
        text = Path(path).read_bytes()
        for place in map(float, places.split(",")):
            start = int(place / 100 * len(text))
            with tempfile.NamedTemporaryFile(suffix=".txt") as window:
                cut = text[start : start + 12 * arguments.tokens].decode("utf-8", "ignore")
                window.write(cut[cut.find(" ") :].encode())
                window.flush()
                for name, flags in policies.items():
                    found[name].append({"text": Path(path).name, "at": place, **score(arguments, flags, window.name)})
                    last = found[name][-1]
                    print(f"{last['text']} {place:g}%  {name:34} dPPL {math.expm1(last['change']):+.2%}  KL {last['kl']:.4f}  "
                          f"top-1 {last['agreement']:.1%}", flush=True)  # fmt: skip

    table = "| memory | dPPL, mean of windows (smallest to largest) | gap closed | KL | top-1 |\n|---|---:|---:|---:|---:|\n"
    gap = statistics.mean(s["change"] for s in found[WINDOW]) if WINDOW in found else None
    for name, scores in found.items():
        changes = [s["change"] for s in scores]
        mean = statistics.mean(changes)
        closed = f"{1 - mean / gap:.0%}" if gap else ""
        table += (
            f"| {name} | {math.expm1(mean):+.2%} ({math.expm1(min(changes)):+.2%} to {math.expm1(max(changes)):+.2%}) | {closed} | "
            f"{statistics.mean(s['kl'] for s in scores):.4f} | {statistics.mean(s['agreement'] for s in scores):.1%} |\n"
        )
    print(table)
    if arguments.markdown:
        Path(arguments.markdown).write_text(table)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
