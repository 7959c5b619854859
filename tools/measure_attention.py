#!/usr/bin/env python3
"""What an attention size costs and saves: speed, perplexity and how often the likeliest token stays the same.

    tools/measure_attention.py --kvtide build/kvtide -m MODEL [-m MODEL] -f TEXT [-f TEXT] [--json F.json] [--markdown F.md]

Of every text, `--pieces` pieces spread over it are read as streams of `--tokens` tokens, with every attention size, with and
without 4 sinks (`--overflow rolling`, its window holding the whole piece). Perplexity is over all pieces, agreement is the
share of positions whose likeliest next token is that of a memory that is seen as a whole. Speed is that of `kvtide bench`
behind `--depth` tokens, the median of `--rounds` rounds over all sizes in turn.
"""
import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SINKS = 4
SMALLEST = 256  # where auto begins


def pieces_of(arguments, folder):
    """Texts that begin at the line ends behind evenly spread places; longer than what is read of them."""
    paths = []
    for number, name in enumerate(arguments.file):
        text = Path(name).read_bytes()
        for piece in range(arguments.pieces):
            start = text.index(b"\n", len(text) * (2 * piece + 1) // (2 * arguments.pieces)) + 1
            path = folder / f"{number}-{piece}.txt"
            path.write_text(text[start : start + arguments.tokens * 8].decode("utf-8", "ignore"), "utf-8")
            paths.append(path)
    return paths


def run(arguments, words):
    return subprocess.run([arguments.kvtide, *map(str, words)], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout  # fmt: skip


def policy(arguments, size, sinks):
    words = ["--overflow", "rolling", "--kv-sinks", SINKS, "--kv-window", arguments.tokens - SINKS] if sinks else []
    return words + ([] if size == "full" else ["--attention-size", size])


def score(arguments, model, piece, size, sinks, folder):
    top = folder / "top.txt"
    words = ["ppl", "-m", model, "-f", piece, "--stream", "-c", arguments.tokens, "--bucket", arguments.tokens, "--json", "--out", top]  # fmt: skip
    result = json.loads(run(arguments, words + policy(arguments, size, sinks)))
    return result["ppl"], result["tokens_scored"], top.read_text().split(), [e["size"] for e in result["events"]]


def accuracy(arguments, model, pieces, folder):
    rows, reference = [], {}
    for sinks in (False, True):
        for size in ["full", *arguments.sizes, "auto"]:
            if sinks and size == "full":
                continue  # everything is seen: the same as without
            loss, count, same, seen, last = 0.0, 0, 0, 0, []
            for piece in pieces:
                ppl, scored, ids, sizes = score(arguments, model, piece, size, sinks, folder)
                if size == "full":
                    reference[piece] = ids
                loss += math.log(ppl) * scored
                count += scored
                same += sum(a == b for a, b in zip(ids, reference[piece]))
                seen += len(ids)
                last.append(sizes[-1] if sizes else SMALLEST)
            rows.append({"size": size, "sinks": sinks, "ppl": math.exp(loss / count), "agreement": same / seen, "tokens": count}
                        | ({"ends_at": last} if size == "auto" else {}))  # fmt: skip
            print(f"{Path(model).stem} {rows[-1]}", file=sys.stderr)
    return rows


def speed(arguments, model):
    """Tokens per second of reading and writing behind the depth, by size."""
    measured = {}
    for _ in range(arguments.rounds):
        for size in ["full", *arguments.sizes]:
            words = ["bench", "-m", model, "-p", 256, "-n", 32, "-d", arguments.depth, "-r", 1, "--json"]
            for case in json.loads(run(arguments, words + policy(arguments, size, False))):
                measured.setdefault((size, case["test"]), []).append(case["tok_s"])
    return {key: statistics.median(values) for key, values in measured.items()}


def table(results, depth):
    lines = []
    for r in results:
        lines += [f"{r['model']}, {r['rows'][0]['tokens']:,} tokens scored:", "",
                  f"| attention size | writing at {depth:,}, tok/s | reading at {depth:,}, tok/s | perplexity | top-1 as full | with "
                  f"{SINKS} sinks: perplexity | top-1 as full |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
        plain = {row["size"]: row for row in r["rows"] if not row["sinks"]}
        sinks = {row["size"]: row for row in r["rows"] if row["sinks"]} | {"full": plain["full"]}
        for size, row in sorted(plain.items(), key=lambda item: {"full": 1e9, "auto": 2e9}.get(item[0], item[0])):
            rates = [f"{r['speed'][f'{size} {test}']:.0f}" if f"{size} {test}" in r["speed"] else "" for test in ("tg", "pp")]
            other = sinks[size]
            ends = ", ".join(f"{n:,}" for n in other.get("ends_at", []))
            lines.append(f"| {size}{f' (with sinks ends at {ends})' if ends else ''} | {rates[0]} | {rates[1]} | {row['ppl']:.2f} | "
                         f"{row['agreement']:.1%} | {other['ppl']:.2f} | {other['agreement']:.1%} |")  # fmt: skip
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("-f", "--file", action="append", required=True)
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], default=[64, 128, 256, 512, 1024])
    parser.add_argument("--tokens", type=int, default=2048, help="read of every piece [%(default)s]")
    parser.add_argument("--pieces", type=int, default=2, help="of every text [%(default)s]")
    parser.add_argument("--depth", type=int, default=4096, help="tokens held while speed is measured [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="where to write everything that was measured")
    parser.add_argument("--markdown", help="where to write the table, too")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        pieces = pieces_of(arguments, Path(folder))
        for model in arguments.model:
            rates = {f"{size} {test}": rate for (size, test), rate in speed(arguments, model).items()}
            results.append({"model": Path(model).stem, "speed": rates, "rows": accuracy(arguments, model, pieces, Path(folder))})
            if arguments.json:
                Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    text = table(results, arguments.depth)
    print(text)
    if arguments.markdown:
        Path(arguments.markdown).write_text(text)


if __name__ == "__main__":
    main()
