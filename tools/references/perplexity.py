"""Perplexity by llama-perplexity's rule, in float32 PyTorch on the dequantised weights.

    python tools/references/perplexity.py -m MODEL.gguf -f TEXT [-c 512] [--chunks N] [-t 2] [--save-ids IDS.npy]

The rule: the text is tokenised once (BOS in front if the vocabulary adds one) and cut into chunks of n_ctx tokens, a
rest is dropped; in each chunk the first token is replaced by BOS if the vocabulary adds one; every chunk starts from
nothing; position i predicts token i + 1 for i from n_ctx/2 to n_ctx - 2, so n_ctx - n_ctx/2 - 1 targets per chunk.
PPL = exp(mean nll); its standard error is that of the mean nll times PPL. Prints one JSON object.
"""

import argparse
import json
import math
import sys
import time

import numpy as np
import torch

from gguf_vocab import Vocabulary
from torch_model import TorchModel


def chunk_losses(model: TorchModel, chunk: list[int]) -> torch.Tensor:
    """nll of the scored targets of one chunk, float64."""
    first = len(chunk) // 2
    hidden = model.hidden_states(chunk)[first : len(chunk) - 1]
    return model.negative_log_likelihood(hidden, torch.tensor(chunk[first + 1 :]))


def perplexity(
    model: TorchModel, vocabulary: Vocabulary, text: str, n_ctx: int = 512, chunks: int | None = None, progress=None
) -> dict:
    ids = vocabulary.encode_document(text)
    if len(ids) < 2 * n_ctx:
        raise ValueError(f"the text has {len(ids)} tokens; the rule wants at least two chunks ({2 * n_ctx})")
    count = min(len(ids) // n_ctx, chunks or len(ids))
    losses, running = [], []
    for i in range(count):
        chunk = ids[i * n_ctx : (i + 1) * n_ctx]
        if vocabulary.add_bos:
            chunk[0] = vocabulary.bos
        losses.append(chunk_losses(model, chunk))
        running.append(math.exp(torch.cat(losses).mean().item()))
        if progress:
            progress(i + 1, count, running[-1])
    nll = torch.cat(losses)
    mean = nll.mean().item()
    # The error of a mean: variance of the losses over (n - 1), carried through exp.
    error = math.sqrt((nll.square().mean().item() - mean * mean) / (len(nll) - 1)) * math.exp(mean)
    return {"ppl": math.exp(mean), "ppl_se": error, "tokens_scored": len(nll), "chunks": running, "ids": ids}


def read_text(path) -> str:
    with open(path, encoding="utf-8", newline="") as file:  # newline="": the line ends of the file, not Python's
        return file.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--file", required=True)
    parser.add_argument("-c", "--ctx", type=int, default=512)
    parser.add_argument("--chunks", type=int)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--save-ids", help="write the ids of the whole text, int32 .npy")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    start = time.monotonic()
    text = read_text(args.file)

    def progress(done: int, count: int, value: float) -> None:
        print(f"[{done}/{count}] {value:.4f}  {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)

    model, vocabulary = TorchModel(args.model), Vocabulary(args.model)
    result = perplexity(model, vocabulary, text, args.ctx, args.chunks, progress)
    ids = result.pop("ids")
    if args.save_ids:
        np.save(args.save_ids, np.array(ids, dtype=np.int32))
    print(json.dumps(result | {"seconds": round(time.monotonic() - start, 1)}))


if __name__ == "__main__":
    main()
