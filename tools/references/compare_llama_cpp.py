"""Compares tiny random GGUF files of every family with llama.cpp: logits behind every token of a prompt.

    make bench-peers            (installs llama-cpp-python into a virtual environment of its own: it compiles llama.cpp, minutes)
    build/venv-references/bin/python tools/references/compare_llama_cpp.py --answers build/cmake/tests/session_answers \
        --peer build/venv-peers/bin/python [--only lfm2]

The shapes are those of compare_architectures.py that have a GGUF form. Weights are F32 (MXFP4 where a case says so), rows are kept in
f32, and kvtide computes in exact arithmetic. llama.cpp multiplies F32 weights in f32 as well, so the digits must agree to 2e-4. Where
llama.cpp is known to compute something else, LIMITS has the reason and what holds instead. A table goes to stdout, a line for each
architecture. A file that llama.cpp does not load is told by what it says.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import gguf_export
import mxfp4
from compare_architectures import CASES, PROMPT
from tiny_models import Case, build

LOGITS, ANY = 2e-4, float("inf")
# What case, or cases that begin so, the largest difference, and why.
LIMITS = (
    ("llama, yarn with an attention factor", ANY, "it seems to have no attention factor beside the one that it computes"),
    ("ministral3, one KV head, window", ANY, "it reads no window of mistral3"),
    ("gpt_oss", ANY, "its YaRN rounds the ends of the blend to whole pairs; with MXFP4 it rounds activations to 8 bits"),
    ("gemma4, odd widths", ANY, "it caps logits at 30 where the file names no cap; and as below"),
    ("gemma4", 5e-2, "its GELU is a table of halves"),
    ("qwen3_5", 1e-3, "not explained; suspected: sums in another order"),
)
PEER = r"""
import sys
import numpy as np
import llama_cpp as lc
path, ids_path, out = sys.argv[1:4]
ids = np.fromfile(ids_path, dtype="<i4").tolist()
lc.llama_backend_init()
said = []
@lc.llama_log_callback
def log(level, text, data):
    said.append((level, text.decode("utf-8", "replace")))
lc.llama_log_set(log, None)
model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
if not model:
    sys.exit([text.strip() for level, text in said if level == 4][0])
params = lc.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch, params.n_threads, params.n_threads_batch = 256, 256, 256, 1, 1
params.type_k = params.type_v = 0  # f32
params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
context = lc.llama_init_from_model(model, params)
if not context:
    sys.exit([text.strip() for level, text in said if level == 4][0])
vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
batch = lc.llama_batch_init(len(ids), 0, 1)
batch.n_tokens = len(ids)
for i, token in enumerate(ids):
    batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
    batch.seq_id[i][0] = 0
if lc.llama_decode(context, batch) != 0:
    sys.exit("llama_decode failed")
rows = [np.ctypeslib.as_array(lc.llama_get_logits_ith(context, i), (vocabulary,)).copy() for i in range(len(ids))]
np.concatenate(rows).astype("<f4").tofile(out)
"""


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"ended with {done.returncode}"]
        raise ValueError(next((line.split("/")[-1] for line in said if "GGML_ASSERT" in line), said[-1]))


def compare(args: argparse.Namespace, case: Case, scratch: pathlib.Path) -> tuple[float, float]:
    """The largest difference of a logit, and the range of the logits."""
    model = build(case)
    scratch.mkdir()
    packed = case.shows == "mxfp4"
    if packed:
        mxfp4.round_experts(model)
    file, ids = str(scratch / "model.gguf"), str(scratch / "ids")
    gguf_export.export(model, case.arch, case.name, file, packed)
    np.random.RandomState(5).randint(0, model.config.vocab_size, PROMPT).astype("<i4").tofile(ids)
    run([args.answers, file, ids, str(scratch / "ours"), str(PROMPT), "0"])
    run([args.peer, "-c", PEER, file, ids, str(scratch / "theirs")])
    ours, theirs = (np.fromfile(scratch / name, dtype="<f4") for name in ("ours", "theirs"))
    return float(np.abs(ours - theirs).max()), float(theirs.max() - theirs.min())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", required=True, help="the program session_answers")
    parser.add_argument("--peer", required=True, help="a Python that has llama_cpp")
    parser.add_argument("--only", default="", help="cases whose names begin so")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    fine, found = True, {}
    with tempfile.TemporaryDirectory(prefix="kvtide-llama-cpp-") as scratch:
        for number, case in enumerate(case for case in CASES if case.name.startswith(args.only) and case.shows != "no gguf"):
            try:
                off, span = compare(args, case, pathlib.Path(scratch) / f"{number}")
            except (ValueError, TypeError) as error:
                print(f"----  {case.arch:16} {case.name}: {error}", file=sys.stderr, flush=True)
                found.setdefault(case.arch, []).append(None)
                continue
            limit, why = next(((limit, why) for name, limit, why in LIMITS if case.name.startswith(name)), (LOGITS, ""))
            fine = fine and off <= limit
            verdict = "FAIL" if not off <= limit else "ok  " if off <= LOGITS else "diff"
            print(f"{verdict}  {case.arch:16} {case.name}: {off:.1e} of {span:.1f} {why}", file=sys.stderr, flush=True)
            found.setdefault(case.arch, []).append((off, why if off > LOGITS else ""))
    print("| architecture | files | loaded | logits equal | largest difference of these | the others |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for arch, results in sorted(found.items()):
        loaded = [result for result in results if result]
        equal = [off for off, why in loaded if not why]
        others = "; ".join(f"{off:.1e}: {why}" for off, why in loaded if why)
        print(f"| `{arch}` | {len(results)} | {len(loaded)} | {len(equal)} | {f'{max(equal):.1e}' if equal else ''} | {others} |")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
