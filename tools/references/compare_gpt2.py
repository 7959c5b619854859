"""Compares GPT-2 with `transformers`, live: a random model of the size of zenz-small, and the tiny ones of the goldens.

    python tools/references/compare_gpt2.py --answers build/cmake/tests/stateful_answers [--greedy 200]

Each reads a prompt in one call, in sevens and one by one, with one state and a mask of all that is active, then writes
the likeliest token step by step. Compared are the logits behind every call (2e-4) and the tokens (all equal). The random
model takes 360 MB of disk and 1.5 GB of memory for as long as it runs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from tiny_folders import GOLDENS
from tiny_models import _scaled_gpt2

LIMIT = 2e-4
PROMPT = 61  # tokens: neither a multiple of 7 nor of a tile
ZENZ_SMALL = dict(n_layer=12, n_head=12, n_embd=768, n_positions=1024, vocab_size=6000, layer_norm_epsilon=1e-5,
                  bos_token_id=1, eos_token_id=2)  # fmt: skip


def write_random(folder: pathlib.Path) -> None:
    config = transformers.GPT2Config(**ZENZ_SMALL)
    model = transformers.GPT2LMHeadModel(config).eval()
    stream = np.random.RandomState(31)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = stream.standard_normal(tuple(parameter.shape))
            # A tied head multiplies by the embedding: rows of length 4 keep the logits of a trained model's size.
            scaled = noise * (4 / np.sqrt(768)) if "wte" in name else _scaled_gpt2(name, noise)
            parameter.copy_(torch.from_numpy(scaled.astype(np.float32)))
    model.save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["[UNK]", "[PAD]", "<s>", "</s>", *alphabet]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(tokens[:4])
    tokenizer.save(str(folder / "tokenizer.json"))


def reference(folder: pathlib.Path, ids: np.ndarray, greedy: int) -> tuple[np.ndarray, list[int]]:
    """Logits behind every position of the prompt and of the tokens chosen, and these tokens."""
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    rows, chosen = [], []
    with torch.no_grad():
        out = model(torch.from_numpy(ids.astype(np.int64))[None], use_cache=True)
        rows.append(out.logits[0].numpy())
        for _ in range(greedy):
            chosen.append(int(rows[-1][-1].argmax()))
            out = model(torch.tensor([[chosen[-1]]]), past_key_values=out.past_key_values, use_cache=True)
            rows.append(out.logits[0].numpy())
    return np.concatenate(rows), chosen


def compare(name: str, program: str, folder: pathlib.Path, scratch: pathlib.Path, greedy: int) -> bool:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    ids = np.random.RandomState(5).randint(0, config["vocab_size"], PROMPT).astype(np.int32)
    greedy = min(greedy, config["n_positions"] - PROMPT)
    wanted, chosen = reference(folder, ids, greedy)
    (scratch / "ids").write_bytes(ids.astype("<i4").tobytes())
    fine = True
    for chunk, words in ((0, "in one call"), (7, "in sevens"), (1, "one by one")):
        command = [program, str(folder), str(scratch / "ids"), str(scratch / "out"), str(chunk), str(greedy)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
        step = chunk or PROMPT
        behind = [min(at + step, PROMPT) - 1 for at in range(0, PROMPT, step)] + list(range(PROMPT, PROMPT + greedy))
        got = np.fromfile(scratch / "out", dtype="<f4").reshape(-1, config["vocab_size"])
        off = float(np.abs(got - wanted[behind]).max()) if got.shape[0] == len(behind) else float("nan")
        same = [int(word) for word in done.stdout.split()] == chosen
        ok = off <= LIMIT and same
        fine = fine and ok
        print(f"{'ok  ' if ok else 'FAIL'}  {name}, prompt {words:12} largest difference of a logit {off:.2e} of "
              f"{wanted.min():.1f} .. {wanted.max():.1f}; {greedy} greedy tokens {'equal' if same else 'differ'}", flush=True)  # fmt: skip
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", required=True, help="the program stateful_answers")
    parser.add_argument("--greedy", type=int, default=200)
    parser.add_argument("-t", "--threads", type=int, default=2, help="threads of the reference")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    fine = True
    with tempfile.TemporaryDirectory(prefix="kvtide-gpt2-") as folder:
        scratch = pathlib.Path(folder)
        for name in ("gpt2-f32", "gpt2-long-f16"):
            fine &= compare(name, args.answers, GOLDENS / name, scratch, args.greedy)
        write_random(scratch / "zenz-small")
        fine &= compare("random, of zenz-small's size", args.answers, scratch / "zenz-small", scratch, args.greedy)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
