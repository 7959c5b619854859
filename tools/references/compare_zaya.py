"""Compares ZAYA1 with `transformers`, live, on tiny random models of several shapes.

    python tools/references/compare_zaya.py --answers build/cmake/tests/session_answers [--greedy 100]

Each reads a prompt at once, in 3 + 2 + 2 ..., 4 + 1 + 1 ..., and one by one, then writes the likeliest token step by step.
Compared are the logits of every position (2e-4), what the state holds behind the prompt: keys, values, the inputs of the
convolutions and the delayed values (1e-5), and the tokens (all equal). Then the same model under the older names, and
with a skip slot that hands its input on.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import tiny_folders
import zaya_legacy
from tiny_folders import ZAYA, Folder
from tiny_models import Case, build

LOGITS, STATES = 2e-4, 1e-5
PROMPT = 45  # tokens: longer than the windows
SPLITS = ((str(PROMPT), "at once"), ("3,2", "3 + 2 + 2 ..."), ("4,1", "4 + 1 + 1 ..."), ("1", "one by one"))
SKIPPED: list[bool] = []  # by comparison: whether a router chose the slot behind the experts
WINDOWS = ["hybrid_sliding", "hybrid", "hybrid_sliding"]

SHAPES = [
    Folder(Case("two KV heads", "zaya", "Zaya", 301, "", dict(ZAYA, num_key_value_heads=2, num_experts=4))),
    Folder(Case("one KV head, 16 experts", "zaya", "Zaya", 302, "",
                dict(ZAYA, num_key_value_heads=1, num_experts=16, num_hidden_layers=3))),
    Folder(Case("windows, three blocks", "zaya", "Zaya", 303, "",
                dict(ZAYA, num_key_value_heads=2, num_experts=5, num_hidden_layers=3, sliding_window=11,
                     layer_types=WINDOWS))),
    Folder(Case("heads of 24, one expert", "zaya", "Zaya", 304, "",
                dict(ZAYA, num_attention_heads=6, num_key_value_heads=3, head_dim=24, num_experts=1, router_hidden_size=20,
                     moe_intermediate_size=40))),
    Folder(Case("integers", "zaya", "Zaya", 305, "", dict(ZAYA, num_key_value_heads=2, num_experts=8)), "I8"),
]  # fmt: skip


class Counted:
    """Which slots a model's routers choose."""

    def __init__(self, model):
        self.slots = set()
        for layer in model.model.layers:
            layer.mlp.gate.router_mlp.register_forward_hook(
                lambda _, __, out, gate=layer.mlp.gate: self.slots.update(
                    (torch.softmax(out, -1) + gate.balancing_biases).argmax(-1).flatten().tolist()))  # fmt: skip


def identity_skip(model) -> None:
    """A skip slot that gives its probability times its input, computed from the router's own answer."""
    for layer in model.model.layers:

        def forward(hidden, previous=None, block=layer.mlp):
            scores, weights, chosen, states = block.gate(hidden, router_states=previous)
            flat = hidden.reshape(-1, hidden.shape[-1])
            out = block.experts(flat, chosen, weights)
            p = torch.softmax(scores, -1)
            skipped = (p + block.gate.balancing_biases).argmax(-1) == block.gate.num_experts
            out = torch.where(skipped[:, None], p[:, -1:] * flat, out)
            return out.view(hidden.shape), states

        layer.mlp.forward = forward


def reference(model, ids: np.ndarray, greedy: int) -> tuple[np.ndarray, list[np.ndarray], list[int]]:
    """Logits behind every token, what the layers hold behind the prompt (a window: its newest rows), tokens chosen."""
    rows, chosen = [], []
    with torch.no_grad():
        out = model(torch.from_numpy(ids.astype(np.int64))[None], use_cache=True)
        rows.append(out.logits[0].numpy())
        parts = []
        for layer in out.past_key_values.layers:
            parts += [layer.keys[0].numpy().copy(), layer.values[0].numpy().copy()]
        for layer in out.past_key_values.layers:
            parts += [layer.conv_states[0][0].numpy().copy(), layer.recurrent_states[0][0].numpy().copy()]
        for _ in range(greedy):
            chosen.append(int(rows[-1][-1].argmax()))
            out = model(torch.tensor([[chosen[-1]]]), past_key_values=out.past_key_values, use_cache=True)
            rows.append(out.logits[0].numpy())
    return np.concatenate(rows), parts, chosen


def state_difference(got: np.ndarray, parts: list[np.ndarray], kv_layers: int) -> float:
    worst, at = 0.0, 0
    for i, want in enumerate(parts):
        if i < 2 * kv_layers:
            heads, held, dim = want.shape
            ours = got[at : at + heads * PROMPT * dim].reshape(heads, PROMPT, dim)[:, PROMPT - held :]
            at += heads * PROMPT * dim
        else:
            ours = got[at : at + want.size].reshape(want.shape)
            at += want.size
        worst = max(worst, float(np.abs(ours - want).max()))
    return worst if at == got.size else float("nan")


def compare(name: str, program: str, folder: pathlib.Path, model, greedy: int, slots: int) -> bool:
    ids = np.random.RandomState(5).randint(0, model.config.vocab_size, PROMPT).astype(np.int32)
    counted = Counted(model)
    wanted, parts, chosen = reference(model, ids, greedy)
    (folder / "ids").write_bytes(ids.astype("<i4").tobytes())
    fine = True
    for split, words in SPLITS:
        command = [program, str(folder), str(folder / "ids"), str(folder / "out"), split, str(greedy)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
        got = np.fromfile(folder / "out", dtype="<f4").reshape(-1, model.config.vocab_size)
        off = float(np.abs(got - wanted).max()) if got.shape == wanted.shape else float("nan")
        state = state_difference(np.fromfile(folder / "out.state", dtype="<f4"), parts, model.config.num_hidden_layers)
        same = [int(word) for word in done.stdout.split()] == chosen
        ok = off <= LOGITS and state <= STATES and same
        fine = fine and ok
        print(f"{'ok  ' if ok else 'FAIL'}  {name}, {words:13} logits {off:.1e} of {wanted.min():.1f} .. {wanted.max():.1f}, "
              f"states {state:.1e}, {greedy} greedy tokens {'equal' if same else 'differ'}", flush=True)  # fmt: skip
    SKIPPED.append(model.config.num_experts in counted.slots)
    if len(counted.slots) < slots:
        print(f"FAIL  {name}: the routers chose {sorted(counted.slots)} only: the comparison shows too little")
        fine = False
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", required=True, help="the program session_answers")
    parser.add_argument("--greedy", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    fine = True
    with tempfile.TemporaryDirectory(prefix="kvtide-zaya-") as scratch:
        for number, shape in enumerate(SHAPES):
            folder = pathlib.Path(scratch) / f"{number}"
            folder.mkdir()
            model = build(shape.case)
            with torch.no_grad():
                tiny_folders.write_weights(tiny_folders.round_weights(model, shape.dtype), folder, shape.shards)
            model.config.save_pretrained(folder)
            tiny_folders.write_tokenizer(folder)
            name = shape.case.name
            fine &= compare(name, args.answers, folder, model, args.greedy, min(5, model.config.num_experts + 1))
            if shape.dtype == "I8" or model.config.sliding_window:
                continue
            # The same weights in the older layout, whose skip slot hands its input on.
            settings = json.loads((folder / "config.json").read_text("utf-8"))
            (folder / "config.json").write_text(json.dumps(zaya_legacy.config(settings)), encoding="utf-8")
            stored = zaya_legacy.tensors(load_file(folder / "model.safetensors"), model.config.num_hidden_layers)
            save_file({name: tensor.contiguous() for name, tensor in stored.items()}, folder / "model.safetensors")
            identity_skip(model)
            fine &= compare(name + ", halves", args.answers, folder, model, args.greedy, min(5, model.config.num_experts + 1))
    if not all(SKIPPED[:2]):  # of both skip slots
        print("FAIL  no router chose the slot behind the experts: the comparison shows too little")
        fine = False
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
