#!/usr/bin/env python3
"""Compares the speed of kvtide with llama.cpp: same file, same threads, interleaved runs, medians and their ratio.

    make bench-peers            (installs llama-cpp-python into a virtual environment: it compiles llama.cpp, minutes)
    bench/compare.py [--depths 0,4096,8192,16384] [--rounds 3] [--json F.json] [--markdown F.md] [--plot F.svg] MODEL...

llama.cpp is driven through its C interface: f16 cache, flash attention, all tokens of a batch at once. Each round runs
both programs one after the other, in fresh processes, so that a change of the machine's speed meets both; a depth is
filled once per process, from the one before. The rows of --json are what `kvtide bench --rows` draws: that is --plot.
Limits are those that kvtide measures beside its own runs.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from model_titles import title_of  # noqa: E402

PEER = r"""
import sys, time
import llama_cpp as lc
model_path, threads, n_prompt, n_decode, repeats = sys.argv[1], *map(int, sys.argv[2:6])
depths = list(map(int, sys.argv[6].split(",")))
lc.llama_backend_init()
model = lc.llama_model_load_from_file(model_path.encode(), lc.llama_model_default_params())
params = lc.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch = depths[-1] + n_prompt + n_decode + 64, n_prompt, n_prompt
params.n_threads = params.n_threads_batch = threads
params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_ENABLED
context = lc.llama_init_from_model(model, params)
memory = lc.llama_get_memory(context)
vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
def token(i):
    return (i * 7919) % (vocabulary - 200) + 100
def decode(first, count):
    array = (lc.llama_token * count)(*[token(i) for i in range(first, first + count)])
    if lc.llama_decode(context, lc.llama_batch_get_one(array, count)) != 0:
        sys.exit("llama_decode failed")
    lc.llama_get_logits_ith(context, -1)
def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
decode(0, n_prompt)  # warm-up
lc.llama_memory_clear(memory, True)
held = 0
for depth in depths:
    while held < depth:
        step = min(n_prompt, depth - held)
        decode(held, step)
        held += step
    reading, writing = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        decode(depth, n_prompt)
        reading.append(n_prompt / (time.perf_counter() - start))
        lc.llama_memory_seq_rm(memory, 0, depth, -1)
        start = time.perf_counter()
        for i in range(n_decode):
            decode(depth + i, 1)
        writing.append(n_decode / (time.perf_counter() - start))
        lc.llama_memory_seq_rm(memory, 0, depth, -1)
    print(median(reading), median(writing), flush=True)
"""
TESTS = {"pp": "prefill of", "tg": "decode of"}


def run_peer(a, model):
    """{(test, depth): tok/s}"""
    command = [sys.executable, "-c", PEER, model, str(a.threads), str(a.prompt), str(a.decode), str(a.repeats), a.depths]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    speed = [tuple(map(float, line.split())) for line in lines if line]
    depths = map(int, a.depths.split(","))
    return {(test, depth): row[i] for depth, row in zip(depths, speed) for i, test in enumerate(TESTS)}


def run_kvtide(a, model):
    """{(test, depth): row of `bench --json`}"""
    command = [a.kvtide, "bench", "-m", model, "-p", str(a.prompt), "-n", str(a.decode), "-d", a.depths, "-t",
               str(a.threads), "-r", str(a.repeats), "--json", *(["--kernels", a.kernels] if a.kernels else [])]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {(row["test"], row["depth"]): row for row in rows}


def row_of(engine, model, key, values, limit, **more):
    return {"engine": engine, "model": model, "test": key[0], "depth": key[1], "tok_s": statistics.median(values),
            "tok_s_rounds": values, "limit_tok_s": limit, **more}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--decode", type=int, default=32)
    parser.add_argument("-r", "--repeats", type=int, default=1, help="of a measurement in one process")
    parser.add_argument("--depths", default="0", help="ascending, for instance 0,4096,8192")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kernels", default="", help="of kvtide; llama.cpp runs what it was compiled for")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--plot")
    parser.add_argument("models", nargs="+")
    a = parser.parse_args()
    rows, lines = [], ["| model | test | kvtide tok/s | share of the limit | llama.cpp tok/s | ratio, median of rounds (min to max) |",
                       "| --- | --- | ---: | ---: | ---: | ---: |"]
    for model in a.models:
        rounds = []
        for done in range(a.rounds):
            rounds.append((run_kvtide(a, model), run_peer(a, model)))
            print(f"{Path(model).name}: round {done + 1} of {a.rounds}", file=sys.stderr, flush=True)
        for key in sorted(rounds[0][0]):
            name = title_of(rounds[0][0][key]["model"])
            ours, theirs = [r[0][key]["tok_s"] for r in rounds], [r[1][key] for r in rounds]
            limit = max(r[0][key]["limit_tok_s"] for r in rounds)
            ratios = sorted(x / y for x, y in zip(ours, theirs))
            rows.append(row_of("kvtide", name, key, ours, limit, ratios=ratios))
            rows.append(row_of("llama.cpp", name, key, theirs, None))
            lines.append(f"| {name} | {TESTS[key[0]]} {a.prompt if key[0] == 'pp' else a.decode} at depth {key[1]:,} | "
                         f"{statistics.median(ours):.0f} | {statistics.median(ours) / limit:.0%} | {statistics.median(theirs):.0f} | "
                         f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |")
    print("\n".join(lines))
    if a.markdown:
        Path(a.markdown).write_text("\n".join(lines) + "\n")
    if a.json or a.plot:
        path = Path(a.json or a.plot + ".json")
        path.write_text(json.dumps(rows, indent=1) + "\n")
        if a.plot:
            subprocess.run([a.kvtide, "bench", "--rows", str(path), "--plot", a.plot], check=True)


if __name__ == "__main__":
    main()
