"""Compares Core ML packages with PyTorch: random models are traced, converted by coremltools, and run by kvtide.

    python tools/references/compare_coreml.py --answers build/cmake/tests/coreml_answers --kvtide build/kvtide

Each decoder reads the same tokens in several chunkings, twelve steps and more, and is compared with the torch module that it was
traced from: logits within 2e-3 of their range, the likeliest token everywhere, states within 0.01, no byte of a state copied.
Weights in every form of compression are compared bit by bit with what coremltools itself decompresses. Packages that kvtide exports
are read by coremltools: its own type inference finds the types that they declare, and its decompression the integers.
"""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("TQDM_DISABLE", "1")  # coremltools shows a bar for every pass

import coremltools as ct
import coremltools.optimize.coreml as cto
import numpy as np
import torch
from coremltools.converters.mil.frontend.milproto.load import load as milproto_load
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic
from torch import nn
from torch.nn import functional as F

TYPES = {"fp16": np.float16, "fp32": np.float32, "int32": np.int32, "bool": np.uint8}
CHUNKINGS = [[5, 1, 3, 1, 1, 1, 1], [1] * 13, [13]]


class Answers:
    """The program that runs packages."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line: str, arrays: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        to, back = self.process.stdin, self.process.stdout
        to.write(line.encode() + b"\n")
        for name, array in (arrays or {}).items():
            kind = next(k for k, v in TYPES.items() if v == array.dtype)
            to.write(" ".join(map(str, [name, kind, array.ndim, *array.shape])).encode() + b"\n")
            to.write(np.ascontiguousarray(array).tobytes())
        to.flush()
        head = back.readline().decode().split(maxsplit=1)
        if head[0] == "error":
            raise RuntimeError(head[1].strip())
        result = {}
        for _ in range(int(head[1])):
            name, kind, _, *shape = back.readline().decode().split()
            shape = [int(size) for size in shape]
            dtype = np.dtype(TYPES[kind])
            result[name] = np.frombuffer(back.read(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
        return result

    def call(self, model: str, inputs: dict[str, np.ndarray], state: str = "-", function: str = "-"):
        return self.ask(f"call {model} {function} {state} {len(inputs)}", inputs)


class Failures(list):
    def check(self, good: bool, what: str) -> None:
        if not good:
            self.append(what)
            print("FAILED", what)


# ---- decoders as people trace them


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Llama(nn.Module):
    """The script for Mistral and Llama: the position comes from the shapes; keys and values of all layers in one state each."""

    L, H, KV, D, V, S = 2, 4, 2, 16, 64, 32

    def __init__(self, sdpa: bool) -> None:
        super().__init__()
        width = self.H * self.D
        self.sdpa = sdpa
        self.embed = nn.Embedding(self.V, width)
        self.layers = nn.ModuleList()
        for _ in range(self.L):
            self.layers.append(nn.ModuleDict(dict(
                n1=Norm(width), n2=Norm(width), q=nn.Linear(width, width, bias=False),
                k=nn.Linear(width, self.KV * self.D, bias=False), v=nn.Linear(width, self.KV * self.D, bias=False),
                o=nn.Linear(width, width, bias=False), gate=nn.Linear(width, 2 * width, bias=False),
                up=nn.Linear(width, 2 * width, bias=False), down=nn.Linear(2 * width, width, bias=False))))  # fmt: skip
        self.norm = Norm(width)
        self.head = nn.Linear(width, self.V, bias=False)
        shape = (self.L, 1, self.KV, self.S, self.D)
        self.register_buffer("keyCache", torch.zeros(shape))
        self.register_buffer("valueCache", torch.zeros(shape))
        self.register_buffer("freqs", 1.0 / 100.0 ** (torch.arange(0, self.D, 2).float() / self.D))

    def rotate(self, x, cos, sin):
        a, b = x[..., : self.D // 2], x[..., self.D // 2 :]
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, inputIds, causalMask):
        tokens, end = inputIds.shape[-1], causalMask.shape[-1]
        past = end - tokens
        angles = torch.arange(past, end).float()[:, None] * self.freqs[None, :]
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embed(inputIds)
        for i, layer in enumerate(self.layers):
            y = layer["n1"](x)
            q = self.rotate(layer["q"](y).view(1, tokens, self.H, self.D).transpose(1, 2), cos, sin)
            k = self.rotate(layer["k"](y).view(1, tokens, self.KV, self.D).transpose(1, 2), cos, sin)
            v = layer["v"](y).view(1, tokens, self.KV, self.D).transpose(1, 2)
            self.keyCache[i : i + 1, :, :, past:end] = k[None]
            self.valueCache[i : i + 1, :, :, past:end] = v[None]
            k = self.keyCache[i, :, :, :end].repeat_interleave(self.H // self.KV, dim=1)
            v = self.valueCache[i, :, :, :end].repeat_interleave(self.H // self.KV, dim=1)
            if self.sdpa:
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=causalMask)
            else:
                y = torch.softmax(q @ k.transpose(2, 3) / self.D**0.5 + causalMask, -1) @ v
            x = x + layer["o"](y.transpose(1, 2).reshape(1, tokens, -1))
            y = layer["n2"](x)
            x = x + layer["down"](F.silu(layer["gate"](y)) * layer["up"](y))
        return self.head(self.norm(x))


def mask(tokens: int, end: int) -> np.ndarray:
    seen = np.arange(end)[None, :] <= np.arange(end - tokens, end)[:, None]
    return np.where(seen, 0.0, -1e4).astype(np.float32)[None, None]


def convert_llama(model: Llama, path: str) -> None:
    query, end = ct.RangeDim(1, model.S, default=1), ct.RangeDim(1, model.S, default=1)
    traced = torch.jit.trace(model.eval(), (torch.zeros((1, 2), dtype=torch.int32), torch.zeros((1, 1, 2, 5))))
    shape = model.keyCache.shape
    ct.convert(
        traced,
        inputs=[ct.TensorType("inputIds", (1, query), np.int32), ct.TensorType("causalMask", (1, 1, query, end), np.float16)],
        outputs=[ct.TensorType("logits", dtype=np.float16)],
        states=[ct.StateType(ct.TensorType(shape=shape, dtype=np.float16), name) for name in ("keyCache", "valueCache")],
        minimum_deployment_target=ct.target.iOS18,
        skip_model_load=True,
    ).save(path)


def compare_llama(answers: Answers, folder: pathlib.Path, sdpa: bool, failures: Failures) -> None:
    name = f"llama-{'sdpa' if sdpa else 'eager'}"
    torch.manual_seed(3)
    model = Llama(sdpa)
    path = folder / f"{name}.mlpackage"
    convert_llama(model, str(path))
    answers.ask(f"open {name} {path}")
    ids = np.random.RandomState(5).randint(0, model.V, (1, 13)).astype(np.int32)
    worst = 0.0
    for chunks in CHUNKINGS:
        answers.ask(f"state s {name} -")
        with torch.no_grad():
            model.keyCache.zero_(), model.valueCache.zero_()
            at = 0
            for tokens in chunks:
                part, seen = ids[:, at : at + tokens], mask(tokens, at + tokens)
                want = model(torch.from_numpy(part), torch.from_numpy(seen)).numpy()
                got = answers.call(name, {"inputIds": part, "causalMask": seen.astype(np.float16)}, "s")["logits"]
                worst = max(worst, float(np.abs(got - want).max() / np.ptp(want)))
                failures.check((got.argmax(-1) == want.argmax(-1)).all(), f"{name}: the likeliest token at {at}")
                at += tokens
        for state in ("keyCache", "valueCache"):
            got, want = answers.ask(f"read s {state}")[state], getattr(model, state).detach().numpy()
            failures.check(float(np.abs(got - want).max()) <= 0.01, f"{name}: state {state}")
    failures.check(worst <= 2e-3, f"{name}: logits differ by {worst:.2e} of their range")
    copied = int(answers.ask(f"copied {name}")["copied"][0])
    failures.check(copied == 0, f"{name}: {copied} bytes of states copied")
    print(f"{name}: {len(CHUNKINGS)} chunkings of 13 tokens, logits within {worst:.1e} of their range, {copied} bytes copied")


# ---- weights


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 96, bias=False)

    def forward(self, x):
        return self.linear(x)


def ways() -> dict[str, list]:
    def linear(**how):
        return cto.linear_quantize_weights, cto.OpLinearQuantizerConfig(weight_threshold=0, **how)

    def palette(**how):
        return cto.palettize_weights, cto.OpPalettizerConfig(mode="kmeans", weight_threshold=0, **how)

    def prune(**how):
        return cto.prune_weights, cto.OpMagnitudePrunerConfig(target_sparsity=0.5, weight_threshold=0, **how)

    return {
        "int8-tensor": [linear(mode="linear_symmetric", dtype="int8", granularity="per_tensor")],
        "int8-channel": [linear(mode="linear", dtype="int8", granularity="per_channel")],
        "int4-block": [linear(mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=32)],
        "uint4-block": [linear(mode="linear", dtype="uint4", granularity="per_block", block_size=16)],
        "lut1": [palette(nbits=1)],
        "lut2": [palette(nbits=2)],
        "lut3": [palette(nbits=3)],
        "lut4": [palette(nbits=4)],
        "lut6": [palette(nbits=6)],
        "lut8": [palette(nbits=8)],
        "lut4-grouped": [palette(nbits=4, granularity="per_grouped_channel", group_size=8)],
        "lut4-vector": [palette(nbits=4, cluster_dim=2)],
        "lut4-scaled": [palette(nbits=4, granularity="per_grouped_channel", group_size=8, enable_per_channel_scale=True)],
        "sparse": [prune()],
        "sparse-lut4": [prune(), palette(nbits=4)],
        "sparse-int8": [prune(), linear(mode="linear_symmetric", dtype="int8", granularity="per_channel")],
    }


def compare_weights(answers: Answers, folder: pathlib.Path, failures: Failures) -> None:
    torch.manual_seed(7)
    traced = torch.jit.trace(Layer().eval(), torch.zeros(1, 64))
    plain = ct.convert(
        traced, inputs=[ct.TensorType("x", (ct.RangeDim(1, 64, default=1), 64), np.float16)], outputs=[ct.TensorType("y", dtype=np.float16)],
        minimum_deployment_target=ct.target.iOS18, skip_model_load=True)  # fmt: skip
    one = np.eye(64, dtype=np.float16)
    for name, steps in ways().items():
        model = plain
        for i, (compress, how) in enumerate(steps):
            joint = {"joint_compression": True} if i > 0 else {}
            model = compress(model, cto.OptimizationConfig(global_config=how), **joint)
        packed, dense = folder / f"{name}.mlpackage", folder / f"{name}-dense.mlpackage"
        model.save(str(packed))
        cto.decompress_weights(model).save(str(dense))
        results = []
        for path in (packed, dense):
            answers.ask(f"open w {path}")
            results.append(answers.call("w", {"x": one})["y"])  # the weight itself: every row of x has a single one
        same = np.array_equal(results[0].view(np.uint16), results[1].view(np.uint16))
        failures.check(same and np.abs(results[1]).max() > 0, f"weights {name}")
    print(f"weights: {len(ways())} ways of compression, bit-equal to coremltools' decompression" if not failures else "weights: compared")


# ---- what kvtide writes

FOLDERS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "folders"
EXPORTS = [
    ("llama-f32", []),
    ("qwen3-i8", ["--int8", "channel"]),
    ("gemma3-f32", ["--int4", "32", "--tokens", "1,4"]),
    ("gpt2-f32", ["--int8", "tensor", "--chunks", "1"]),
]


def inferred_types(package: pathlib.Path) -> tuple[int, list[str]]:
    """How many results coremltools found types of, and those that are not as the package declares them."""
    spec = ct.utils.load_spec(str(package))
    program = milproto_load(spec, spec.specificationVersion, str(package / "Data/com.apple.CoreML/weights"))
    declared = {}
    block = next(iter(spec.mlProgram.functions["main"].block_specializations.values()))
    for operation in block.operations:
        for output in operation.outputs:
            tensor = output.type.tensorType
            sizes = [d.constant.size if d.HasField("constant") else None for d in tensor.dimensions]
            declared[output.name] = types.builtin_to_string(types.PROTO_TO_BUILTIN_TYPE[tensor.dataType]), sizes
    seen, wrong = 0, []
    for operation in program.functions["main"].operations:
        for var in operation.outputs:
            if var.name not in declared or not types.is_tensor(var.sym_type):
                continue
            seen += 1
            dtype, sizes = types.builtin_to_string(var.dtype), [None if is_symbolic(d) else int(d) for d in var.shape]
            want_dtype, want = declared[var.name]
            fits = len(sizes) == len(want) and all(a is None or b is None or a == b for a, b in zip(sizes, want))
            if not fits or dtype != want_dtype:
                wrong.append(f"{var.name}: {dtype} {sizes}, declared {declared[var.name]}")
    return seen, wrong


def compare_exports(kvtide: str, folder: pathlib.Path, failures: Failures) -> None:
    results = 0
    for model, how in EXPORTS:
        path = folder / f"{model}.mlpackage"
        subprocess.run([kvtide, "coreml", "export", "-m", str(FOLDERS / model), "-o", str(path), "--slots", "64", *how], check=True, capture_output=True)
        for package in [path] if (path / "Manifest.json").exists() else sorted(path.glob("*.mlpackage")):
            seen, wrong = inferred_types(package)
            results += seen
            for what in wrong:
                failures.check(False, f"{model}, {package.name}: {what}")
            failures.check(seen > 0, f"{model}, {package.name}: no types")
    print(f"exports: {results} results of {len(EXPORTS)} models have the types that coremltools infers")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", required=True, help="the program coreml_answers")
    parser.add_argument("--kvtide", required=True, help="the program kvtide")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    answers, failures = Answers(arguments.answers), Failures()
    with tempfile.TemporaryDirectory() as folder:
        for sdpa in (True, False):
            compare_llama(answers, pathlib.Path(folder), sdpa, failures)
        compare_weights(answers, pathlib.Path(folder), failures)
        compare_exports(arguments.kvtide, pathlib.Path(folder), failures)
    print(f"{len(failures)} differences" if failures else "Core ML packages agree with PyTorch")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
