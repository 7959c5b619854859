#!/usr/bin/env python3
"""Measures what budgets cost a model, and writes src/cli/optional/measured_losses_table.cpp.

    tools/ship_losses.py measure KVTIDE MODEL.gguf TEXT[,TEXT...] TOKENS BUDGETS RESULT.json [NAME]
    tools/ship_losses.py write RESULT.json [RESULT.json ...]

BUDGETS: for instance 16M,32M,64M. Every budget is one `kvtide ppl --stream --against full` over the first TOKENS tokens of
each TEXT, and its losses are the means: a short text alone says little. A result that is there is kept, so that a campaign
can be interrupted.
"""

import hashlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

FRONT = """// measured_losses_table.cpp: written by tools/ship_losses.py; do not edit.
#include "cli/optional/measured_losses.h"

namespace kvtide {
namespace {

"""


def run(*words: object) -> dict:
    return json.loads(subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout)


def measure(kvtide: str, model: str, texts: str, tokens: str, budgets: str, result: str, name: str = "") -> None:
    path = Path(result)
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept.setdefault("model", hashlib.sha256(Path(model).read_bytes()).hexdigest())
    kept.setdefault("name", name or Path(model).stem)
    kept.setdefault("tokens", int(tokens))
    losses = kept.setdefault("losses", {})
    for budget in budgets.split(","):
        if budget in losses:
            continue
        plan = run(kvtide, "plan", "-m", model, "--ctx", tokens, "--budget", budget, "--json")
        told = [
            run(kvtide, "ppl", "-m", model, "-f", text, "-c", tokens, "--stream", "--against", "full", "--kv-budget", budget, "--json")
            for text in texts.split(",")
        ]
        means = {name: statistics.mean(one[key] for one in told) for name, key in (("kl", "kl"), ("perplexity", "dppl"))}
        losses[budget] = {"share": plan["budget"] / plan["full_cache_bytes"], **means}
        path.write_text(json.dumps(kept, indent=1) + "\n")
        print(budget, losses[budget], flush=True)


def write(*results: str) -> None:
    text, entries = FRONT, ""
    for i, result in enumerate(results):
        told = json.loads(Path(result).read_text())
        text += f"constexpr MeasuredLoss kLosses{i}[] = {{\n"
        for loss in sorted(told["losses"].values(), key=lambda one: one["share"]):
            text += f"    {{{loss['share']!r}, {loss['kl']:.5f}, {loss['perplexity']:.5f}}},\n"
        text += "};\n"
        entries += f'    {{"{told["model"]}", "{told["name"]}", {told["tokens"]}, kLosses{i}}},\n'
    text += f"\nconstexpr MeasuredLosses kMeasured[] = {{\n{entries}}};\n"
    text += "\n}  // namespace\n\nstd::span<const MeasuredLosses> measured_losses() { return kMeasured; }\n\n}  // namespace kvtide\n"
    target = Path(__file__).resolve().parents[1] / "src" / "cli" / "optional" / "measured_losses_table.cpp"
    target.write_text(text)
    subprocess.run(["clang-format-14", "-i", str(target)], check=True)


def main() -> int:
    actions = {"measure": measure, "write": write}
    if len(sys.argv) < 3 or sys.argv[1] not in actions:
        print(__doc__, file=sys.stderr)
        return 2
    actions[sys.argv[1]](*sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
