#!/usr/bin/env python3
"""Reads a long text inside KV budgets and checks what they promise: the bytes, flat memory, speed that stays.

    tools/measure_long.py --kvtide build/kvtide -f BOOK -m MODEL --budget 128M [--budget 48M] [--tokens 100000]
      [--json F.json] [--markdown F.md]

Each budget is one `kvtide run -n 64` over the first --tokens tokens of the text, while the memory of the process is sampled,
pages of files apart, and what it says of its progress is timed: a line for each twentieth of the text, and an event for each
block that is compressed. Fails when more than the budget was held at any moment, or when the memory moves by more than 2 MiB up
or down after the budget was used, the ids of the text apart (4 bytes a token).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from resident import resident

MIB = 1 << 20
SERIES = ("memory_by_position", "read_by_second", "seals")
MOST_SWING = 4 * MIB  # two up or down
ID_BYTES = 4  # of a token, which a session keeps for its snapshots


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)([KMG]?)", text).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def tokens_of(kvtide, model, text):
    done = subprocess.run([kvtide, "tokenize", "-m", model, "-f", "-", "--json"], input=text, capture_output=True, check=True)
    return len(json.loads(done.stdout)["ids"])


def first_tokens(kvtide, model, text, wanted):
    """The beginning of the text that has about so many tokens."""
    share = len(text) / max(1, tokens_of(kvtide, model, text[: 1 << 20].decode("utf-8", "ignore").encode())) * min(1.0, (1 << 20) / len(text))
    cut = text[: int(wanted * share)]
    for _ in range(4):
        cut = cut.decode("utf-8", "ignore").encode()
        have = tokens_of(kvtide, model, cut)
        if abs(have - wanted) <= wanted // 200:
            break
        cut = text[: len(cut) * wanted // have]
    return cut.decode("utf-8", "ignore").encode()


def thinned(series, most=400):
    return series[:: max(1, len(series) // most)]


def new_lines(path):
    """Again and again: the whole lines that a file has gained."""
    text, done = "", 0
    while True:
        if path.exists():
            with path.open() as file:
                file.seek(done)
                text += file.read()
                done = file.tell()
        *whole, text = text.split("\n")
        yield whole


def measure(arguments, model, budget, book):
    folder = Path(tempfile.mkdtemp())
    report, log = folder / "report.json", folder / "kv.jsonl"
    command = [arguments.kvtide, "run", "-m", model, "-f", book, "-n", "64", "--kv-budget", budget, "--report", str(report),
               "--kv-log", str(log), *arguments.more]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines, samples, times = [], [], []

    def listen():
        for line in process.stderr:
            if found := re.match(r"reading .* ([\d,]+)/", line):
                lines.append((time.monotonic(), int(found[1].replace(",", ""))))
            elif line.startswith("kvtide: "):
                sys.stderr.write(line)

    listener = threading.Thread(target=listen)
    listener.start()
    events = new_lines(log)
    while process.poll() is None:
        position = max([json.loads(line)["position"] for line in next(events)] + [n for _, n in lines[-1:]], default=0)
        if position > (times[-1][1] if times else 0):
            times.append((time.monotonic(), position))
        if times and (held := resident(process.pid, "Anonymous")):
            samples.append((time.monotonic(), times[-1][1], held))
        time.sleep(0.1)
    listener.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    figures = json.loads(report.read_text())

    def moment_of(tokens):  # between two progress lines
        for (t0, n0), (t1, n1) in zip(times, times[1:]):
            if n0 <= tokens <= n1 and n1 > n0:
                return t0 + (t1 - t0) * (tokens - n0) / (n1 - n0)
        return None

    def speed(first, last):
        last = min(last, times[-1][1])
        begin, end = moment_of(first), moment_of(last)
        return (last - first) / (end - begin) if begin and end and end > begin else None

    seals = [json.loads(line) for line in log.read_text().splitlines()]
    read = figures["prefill_tokens"]
    steady = figures["kv_steady_from"]
    # What is given back when the process ends is no part of the run.
    samples = [(position, held) for moment, position, held in samples if moment <= times[-1][0]]
    flat = [held - ID_BYTES * position for position, held in samples if position >= steady]
    tenth = read // 10
    return {
        "model": Path(model).name,
        "budget": bytes_of(budget),
        "tokens": read,
        "kv_bytes_peak": figures["kv_bytes_peak"],
        "steady_from": steady,
        "memory_swing": max(flat) - min(flat) if flat else 0,
        "rss": figures["rss_bytes"],
        "early_tok_s": speed(tenth, 2 * tenth),
        "late_tok_s": speed(read - tenth, read),
        "prefill_tok_s": figures["prefill_tok_s"],
        "decode_tok_s": figures["decode_tok_s"],
        "seal_ms": figures["seal_ms"],
        "rows": figures["rows"],
        "memory_by_position": thinned(samples),
        "read_by_second": thinned([(round(t - times[0][0], 2), n) for t, n in times]),
        "seals": thinned(seals),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvtide", required=True)
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("-f", "--file", required=True)
    parser.add_argument("--budget", action="append", required=True)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("more", nargs="*", help="flags for kvtide run, behind --")
    arguments = parser.parse_args()

    text = Path(arguments.file).read_bytes()
    rows, failures = [], []
    for model in arguments.model:
        with tempfile.NamedTemporaryFile(suffix=".txt") as book:
            book.write(first_tokens(arguments.kvtide, model, text, arguments.tokens))
            book.flush()
            for budget in arguments.budget:
                row = measure(arguments, model, budget, book.name)
                rows.append(row)
                print(json.dumps({key: value for key, value in row.items() if key not in SERIES}), flush=True)
                if row["kv_bytes_peak"] > row["budget"]:
                    failures.append(f"{row['model']}, {budget}: {row['kv_bytes_peak']} bytes were held")
                if row["memory_swing"] > MOST_SWING:
                    failures.append(f"{row['model']}, {budget}: the memory of the process moved by {row['memory_swing']} bytes")
    table = "| model | budget | tokens | held at most | full since | memory moves by | tok/s in the second tenth | in the last | decode |\n"
    table += "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    for row in rows:
        ratio = row["late_tok_s"] / row["early_tok_s"] if row["early_tok_s"] and row["late_tok_s"] else float("nan")
        table += (
            f"| {row['model']} | {row['budget'] / MIB:.0f} MiB | {row['tokens']:,} | {row['kv_bytes_peak'] / MIB:.1f} MiB | "
            f"{row['steady_from']:,} | {row['memory_swing'] / MIB:.2f} MiB | {row['early_tok_s'] or 0:.0f} | "
            f"{row['late_tok_s'] or 0:.0f} ({ratio:.0%}) | {row['decode_tok_s']:.0f} |\n"
        )
    print(table)
    if arguments.markdown:
        Path(arguments.markdown).write_text(table)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    for failure in failures:
        print("FAILED " + failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
