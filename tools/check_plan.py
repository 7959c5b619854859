#!/usr/bin/env python3
"""What `kvtide plan` predicts for a model of 7B-class attention with few layers, beside what it does with random weights.

    tools/check_plan.py --kvtide build/kvtide [--layers 3] [--ctx 8192] [--budget 32M]

Writes such a model (32 query heads and 8 KV heads of 128, width 4,096, q8_0) and a head table in which one KV head of eleven
copies, plans it, reads --ctx tokens of random words inside the budget and writes 128 more. Prints predicted and measured
figures; fails when the run holds more than was planned. Limits are measured while planning and speed afterwards: on a machine that
others use a run can come out above its limit.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "cli"))
import word_model  # noqa: E402

MIB = 1 << 20
WRITTEN = 128


def kvtide(arguments, *words):
    done = subprocess.run([arguments.kvtide, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"kvtide {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", required=True)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--ctx", type=int, default=8192)
    parser.add_argument("--budget", default="32M")
    arguments = parser.parse_args()
    shape = word_model.Shape(4096, 14336, 32, 8, 128, arguments.layers, 2 * arguments.ctx)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = word_model.write(folder / "random.gguf", shape, word_model.eight_bits)
        heads = folder / "heads.tsv"
        rows = [(h // shape.kv_heads, h % shape.kv_heads, 0.5 if h % 11 == 0 else 0.0, 10, 0.1)
                for h in range(shape.layers * shape.kv_heads)]  # fmt: skip
        heads.write_text("layer\thead\tinduction\tshare\toutput_norm\n" + "".join("\t".join(map(str, r)) + "\n" for r in rows))
        words = [w.replace("\u0120", " ") for w in word_model.words()]  # six letters and as many tokens
        text = "".join(random.Random(1).choices(words, k=(arguments.ctx - WRITTEN) // 6))
        (folder / "text.txt").write_text(text)
        memory = ("--kv-budget", arguments.budget, "--kv-heads", heads)
        plan = json.loads(kvtide(arguments, "plan", "-m", model, "--ctx", arguments.ctx, "--json", *memory))
        kvtide(arguments, "run", "-m", model, "-f", folder / "text.txt", "-n", WRITTEN, "-c", arguments.ctx, "--temp", 0,
               "--report", folder / "report.json", *memory)  # fmt: skip
        report = json.loads((folder / "report.json").read_text())
    held = report["kv_bytes_peak"]
    print(f"{shape.layers} layers of {shape.kv_heads} KV heads of {shape.head_dim}, {report['position']:,} tokens, {plan['weights_bytes'] / MIB:.0f} MiB of weights\n"
          f"KV bytes: at most {plan['total_bytes'] / MIB:.1f} MiB planned, {held / MIB:.1f} held\n"
          f"write: limit {plan['write_tok_s']:.1f} tok/s, measured {report['decode_tok_s']:.1f} ({report['decode_tok_s'] / plan['write_tok_s']:.0%})\n"
          f"read: limit {plan['read_tok_s']:.0f} tok/s at the end, measured {report['prefill_tok_s']:.0f} on average "
          f"({report['prefill_tok_s'] / plan['read_tok_s']:.0%})")  # fmt: skip
    return 0 if held <= plan["total_bytes"] else 1


if __name__ == "__main__":
    sys.exit(main())
