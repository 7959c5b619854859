"""Compares logits with llama.cpp (package llama-cpp-python, not among the pinned references: it builds for minutes).

    python tools/references/check_with_llama_cpp.py                       the tiny models against their goldens
    python tools/references/check_with_llama_cpp.py -m MODEL [--plain F]  a real model against torch_model.py

A check of the references themselves, run when they change. llama.cpp quantises activations for quantised weights, so a
real model agrees in argmax and to some percent of the range only. --plain writes a float32 copy of the model to F
first (1 GB for Gemma) and lets llama.cpp run that: then the digits must agree.
"""

import argparse
import json

import gguf
import numpy as np
import torch
from llama_cpp import Llama

from gguf_vocab import Vocabulary
from tiny_models import GOLDENS
from torch_model import TorchModel

GGML_TYPE_F32 = 0


def peer_logits(path: str, ids: list[int]) -> np.ndarray:
    llama = Llama(path, n_ctx=max(256, len(ids)), n_threads=1, n_threads_batch=1, logits_all=True,
                  type_k=GGML_TYPE_F32, type_v=GGML_TYPE_F32, flash_attn=False, verbose=False)  # fmt: skip
    llama.eval(ids)
    return np.array(llama.scores[: len(ids)], dtype=np.float32)


def write_plain_copy(path: str, out: str) -> None:
    """The same file with every tensor dequantised to float32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def report(name: str, want: np.ndarray, got: np.ndarray) -> None:
    off = np.abs(want - got).max()
    span = want.max() - want.min()
    same = (want.argmax(1) == got.argmax(1)).mean()
    rms = np.sqrt(np.mean((want - got) ** 2))
    shares = f"{off / span:.1e} of the range, rms {rms / span:.1e}"
    print(f"{name:22} max |diff| {off:.2e} ({shares})  same argmax {same:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model")
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--plain", metavar="F")
    args = parser.parse_args()
    if args.model:
        torch.set_num_threads(1)
        if args.plain:
            write_plain_copy(args.model, args.plain)
        ids = Vocabulary(args.model).encode_document((GOLDENS / "prose.txt").read_text("utf-8"))[: args.n]
        got = peer_logits(args.plain or args.model, ids)
        report(args.model.rsplit("/", 1)[-1], TorchModel(args.model).logits(ids).numpy(), got)
        return
    manifest = json.loads((GOLDENS / "manifest.json").read_text("utf-8"))
    ids = np.load(GOLDENS / manifest["ids"]).tolist()
    for entry in manifest["models"]:
        want = np.load(GOLDENS / entry["logits"])
        report(entry["name"], want, peer_logits(str(GOLDENS / entry["model"]), ids))


if __name__ == "__main__":
    main()
