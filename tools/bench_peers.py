#!/usr/bin/env python3
"""Compares the speed of kvtide with llama.cpp: same file, same threads, interleaved runs, medians and their ratio.

    make bench-peers            (installs llama-cpp-python into a virtual environment: it compiles llama.cpp, minutes)

llama.cpp is driven through its C interface, with flash attention as it chooses and a batch that holds the whole prompt;
kvtide through `kvtide bench`. Each round runs both programs one after the other, in fresh processes, so that a change
of the machine's speed meets both.
"""
import argparse
import json
import statistics
import subprocess
import sys

PEER = r"""
import sys, time
import llama_cpp as lc
model_path, threads, n_prompt, n_decode, repeats = sys.argv[1], *map(int, sys.argv[2:6])
lc.llama_backend_init()
model = lc.llama_model_load_from_file(model_path.encode(), lc.llama_model_default_params())
params = lc.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch = n_prompt + n_decode + 64, n_prompt, n_prompt
params.n_threads = params.n_threads_batch = threads
context = lc.llama_init_from_model(model, params)
vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
tokens = [(i * 7919) % (vocabulary - 200) + 100 for i in range(n_prompt)]
def decode(ids):
    array = (lc.llama_token * len(ids))(*ids)
    if lc.llama_decode(context, lc.llama_batch_get_one(array, len(ids))) != 0:
        sys.exit("llama_decode failed")
    lc.llama_get_logits_ith(context, -1)
for _ in range(repeats + 1):  # the first is a warm-up
    lc.llama_memory_clear(lc.llama_get_memory(context), True)
    start = time.perf_counter()
    decode(tokens)
    prefill = time.perf_counter() - start
    lc.llama_memory_clear(lc.llama_get_memory(context), True)
    decode(tokens[:1])
    start = time.perf_counter()
    for i in range(n_decode):
        decode([tokens[i + 1]])
    print(n_prompt / prefill, n_decode / (time.perf_counter() - start))
"""


def run_peer(arguments, model):
    command = [sys.executable, "-c", PEER, model, str(arguments.threads), str(arguments.prompt), str(arguments.decode),
               str(arguments.repeats)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [tuple(map(float, line.split())) for line in output.splitlines()][1:]
    return [statistics.median(column) for column in zip(*rows)]


def run_kvtide(arguments, model):
    command = [arguments.kvtide, "bench", "-m", model, "-p", str(arguments.prompt), "-n", str(arguments.decode), "-d", "0",
               "-t", str(arguments.threads), "-r", str(arguments.repeats), "--json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if isinstance(rows, dict):
        rows = rows["results"]
    speed = {row["test"]: row["tok_s"] for row in rows if row["depth"] == 0}
    return [speed["pp"], speed["tg"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--decode", type=int, default=64)
    parser.add_argument("-r", "--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    print("| model | test | kvtide tok/s | llama.cpp tok/s | ratio, median of rounds (min to max) |")
    print("| --- | --- | ---: | ---: | ---: |")
    for model in arguments.models:
        rounds = [(run_kvtide(arguments, model), run_peer(arguments, model)) for _ in range(arguments.rounds)]
        for index, test in enumerate([f"prefill of {arguments.prompt}", "decode at depth 0"]):
            ours = [r[0][index] for r in rounds]
            theirs = [r[1][index] for r in rounds]
            ratios = sorted(a / b for a, b in zip(ours, theirs))
            print(f"| {model.rsplit('/', 1)[-1]} | {test} | {statistics.median(ours):.0f} | {statistics.median(theirs):.0f} | "
                  f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
