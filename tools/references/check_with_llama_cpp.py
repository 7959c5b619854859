"""Compares logits with llama.cpp (package llama-cpp-python, not among the pinned references: it builds for minutes).

    python tools/references/check_with_llama_cpp.py                   the tiny models against their goldens
    python tools/references/check_with_llama_cpp.py -m MODEL [-n 64]  a real model against torch_model.py

A check of the references themselves, run when they change. llama.cpp quantises activations for quantised weights, so
the real models agree in argmax and in a percent or so of the range, not in digits.
"""

import argparse
import json

import numpy as np
from llama_cpp import Llama

from tiny_models import GOLDENS

GGML_TYPE_F32 = 0


def peer_logits(path: str, ids: list[int]) -> np.ndarray:
    llama = Llama(path, n_ctx=256 if len(ids) <= 256 else len(ids), n_threads=1, n_threads_batch=1, logits_all=True,
                  type_k=GGML_TYPE_F32, type_v=GGML_TYPE_F32, flash_attn=False, verbose=False)  # fmt: skip
    llama.eval(ids)
    return np.array(llama.scores[: len(ids)], dtype=np.float32)


def report(name: str, want: np.ndarray, got: np.ndarray) -> None:
    off = np.abs(want - got).max()
    span = want.max() - want.min()
    same = (want.argmax(1) == got.argmax(1)).mean()
    rms = np.sqrt(np.mean((want - got) ** 2))
    print(f"{name:22} max |diff| {off:.2e} ({off / span:.1e} of the range, rms {rms / span:.1e})  same argmax {same:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model")
    parser.add_argument("-n", type=int, default=64)
    args = parser.parse_args()
    if args.model:
        import torch
        from gguf_vocab import load_tokenizer
        from torch_model import TorchModel

        torch.set_num_threads(1)
        ids = load_tokenizer(args.model).encode((GOLDENS / "prose.txt").read_text("utf-8"))[: args.n]
        report(args.model.rsplit("/", 1)[-1], TorchModel(args.model).logits(ids).numpy(), peer_logits(args.model, ids))
        return
    manifest = json.loads((GOLDENS / "manifest.json").read_text("utf-8"))
    ids = np.load(GOLDENS / manifest["ids"]).tolist()
    for entry in manifest["models"]:
        want = np.load(GOLDENS / entry["logits"])
        report(entry["name"], want, peer_logits(str(GOLDENS / entry["model"]), ids))


if __name__ == "__main__":
    main()
