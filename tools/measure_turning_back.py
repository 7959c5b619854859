#!/usr/bin/env python3
"""Counts the tokens that are read again when the third-last turn of a long chat is edited: kvtide's chat, and llama.cpp.

    make bench-peers            (installs llama-cpp-python into a virtual environment: it compiles llama.cpp, minutes)
    build/venv-peers/bin/python tools/measure_turning_back.py --text FILE MODEL[:FLAG,FLAG...]... [--tokens 8000] [--json F.json]

FLAGs go to `kvtide chat`, for instance model.gguf:--overflow,rolling,--kv-window,1024. The chat has nine turns of one
length. Two are taken back and the third is asked anew; counted is what was read beyond the new message. llama.cpp's
library is asked to forget the same tokens of a text of that length (llama_memory_seq_rm). Where it cannot, its rule is
to clear the memory and to read everything before them again. Of a model with windows the library is asked both with
rows of the windows alone (swa_full false) and with all rows. llama-server keeps checkpoints of its own, which are not
measured here.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TURNS = 9
PEER = r"""
import sys
import llama_cpp as lc
path, total, length, chunk, whole = sys.argv[1], *map(int, sys.argv[2:6])
lc.llama_backend_init()
model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
params = lc.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch, params.swa_full = total + 64, chunk, chunk, bool(whole)
params.n_threads = params.n_threads_batch = 2
context = lc.llama_init_from_model(model, params)
memory = lc.llama_get_memory(context)
vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
for first in range(0, total, chunk):
    ids = [(i * 7919) % (vocabulary - 200) + 100 for i in range(first, min(total, first + chunk))]
    array = (lc.llama_token * len(ids))(*ids)  # the batch points there
    if lc.llama_decode(context, lc.llama_batch_get_one(array, len(ids))) != 0:
        sys.exit("llama_decode failed")
removed = lc.llama_memory_seq_rm(memory, 0, length, -1)
# A window that has moved on: what the next token would see is gone, though removing succeeds.
oldest = lc.llama_memory_seq_pos_min(memory, 0) if removed else -1
window = max(0, lc.llama_model_n_swa(model))
seen = oldest < 0 or window == 0 or oldest <= max(0, length - window)
print(0 if removed and seen and lc.llama_memory_seq_pos_max(memory, 0) == length - 1 else length)
"""


def run_kvtide(a, model, flags, lines):
    """The report, the tokens that were read again, and whether everything was."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [a.kvtide, "chat", "-m", model, "--report", str(report), "-n", "8", "--temp", "0", "-t", "2", *flags]
        done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{model}: {done.stderr.strip()}")
        talk = json.loads(report.read_text("utf-8"))
    again = sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) tokens before them were read again", done.stderr))
    whole = len(re.findall(r"what came before will be read again", done.stderr)) > 0
    return talk, again, whole


def measure(a, spec):
    model, _, flags = spec.partition(":")
    flags = [flag for flag in flags.split(",") if flag]
    words = Path(a.text).read_text("utf-8").split()
    per_turn = int(a.tokens / TURNS / a.tokens_per_word)
    lines = [" ".join(words[i * per_turn : (i + 1) * per_turn]) for i in range(TURNS)]
    edited = " ".join(words[TURNS * per_turn : (TURNS + 1) * per_turn])
    report, again, whole = run_kvtide(a, model, ["-c", str(3 * a.tokens), *flags], [*lines, "/undo", "/undo", f"/edit {edited}"])
    turns = report["turns"]
    read = [turn["prefill_tokens"] + turn["decode_tokens"] for turn in turns]
    total, at = sum(read[:TURNS]), sum(read[: TURNS - 3])
    if whole:  # the last turn read everything before it, too
        again += at
    row = {"model": Path(model).stem, "flags": " ".join(flags), "tokens": total, "edited_at": at, "new_message": turns[-1]["prefill_tokens"],
           "kvtide_again": again}  # fmt: skip
    for name, all_rows in (("llama_cpp_again", 0), ("llama_cpp_all_rows_again", 1)):
        if flags and "rolling" in flags:
            continue
        done = subprocess.run([sys.executable, "-c", PEER, model, str(total), str(at), "512", str(all_rows)], capture_output=True, text=True)
        row[name] = int(done.stdout) if done.returncode == 0 else None
        if done.returncode != 0:
            row["llama_cpp_says"] = done.stderr.strip().splitlines()[-1:]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("--text", required=True, help="English text; its words fill the turns")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--tokens-per-word", type=float, default=1.35)
    parser.add_argument("--json")
    parser.add_argument("models", nargs="+")
    a = parser.parse_args()
    rows = []
    print("| model | chat, tokens | edited at | kvtide reads again | llama.cpp reads again | with all rows of windows kept |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for spec in a.models:
        row = measure(a, spec)
        rows.append(row)
        peers = [row.get(key) for key in ("llama_cpp_again", "llama_cpp_all_rows_again")]
        shown = ["" if value is None else f"{value:,}" for value in peers]
        print(f"| {row['model']} {row['flags']} | {row['tokens']:,} | {row['edited_at']:,} | {row['kvtide_again']:,} | {shown[0]} | {shown[1]} |", flush=True)
    if a.json:
        Path(a.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
