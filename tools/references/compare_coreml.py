"""Compares Core ML packages with PyTorch: random models are traced, converted by coremltools, and run by kvtide.

    python tools/references/compare_coreml.py --answers build/cmake/tests/coreml_answers --kvtide build/kvtide

Each decoder (coreml_decoders.py) reads the same tokens in several chunkings, thirteen steps, and is compared with the torch module that it
was traced from: logits within 2e-3 of their range, the likeliest token everywhere, states within 0.01, no byte of a state copied, nothing
but hints from lint. The same programs as MIL text give the same bits.
Weights in every form of compression are compared bit by bit with what coremltools itself decompresses. Packages that kvtide exports
are read by coremltools: its own type inference finds the types that they declare, and its decompression the integers.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import shutil
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

import coreml_decoders as decoders
from coreml_bridge import compare_bridge

TYPES = {"fp16": np.float16, "fp32": np.float32, "int32": np.int32, "bool": np.uint8}


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


class Forms:
    """Every package twice: as it is, and compiled to text by hand (model.mil as kvtide prints it, beside the same weights)."""

    def __init__(self, answers: Answers, kvtide: str, failures: Failures) -> None:
        self.answers, self.kvtide, self.failures = answers, kvtide, failures

    def open(self, name: str, package: pathlib.Path) -> None:
        text = package.with_suffix(".mlmodelc")
        text.mkdir()
        printed = subprocess.run([self.kvtide, "coreml", "inspect", "--mil", str(package)], check=True, capture_output=True).stdout
        (text / "model.mil").write_bytes(printed)
        weights = package / "Data/com.apple.CoreML/weights"
        if weights.exists():
            shutil.copytree(weights, text / "weights")
        self.answers.ask(f"open {name} {package}")
        self.answers.ask(f"open {name}.text {text}")
        found = json.loads(subprocess.run([self.kvtide, "coreml", "lint", str(package), "--json"], check=True, capture_output=True).stdout)
        for finding in found["findings"]:
            self.failures.check(finding["severity"] == "hint", f"{name}: lint says {finding['message']}")

    def states(self, of: str) -> None:
        for form in ("", ".text"):
            self.answers.ask(f"state s{form} {of}{form} -")

    def call(self, name: str, inputs: dict[str, np.ndarray], state: str = "s", function: str = "-") -> dict[str, np.ndarray]:
        inputs = {key: np.asarray(value, np.float16 if value.dtype == np.float32 else value.dtype) for key, value in inputs.items()}
        got = self.answers.call(name, inputs, state, function)
        text = self.answers.call(f"{name}.text", inputs, state if state == "-" else f"{state}.text", function)
        same = all(np.array_equal(value.view(np.uint16), text[key].view(np.uint16)) for key, value in got.items())
        self.failures.check(same, f"{name}: the text gives other bits than the package")
        return got

    def check_copies(self, name: str) -> None:
        for form in ("", ".text"):
            copied = int(self.answers.ask(f"copied {name}{form}")["copied"][0])
            self.failures.check(copied == 0, f"{name}{form}: {copied} bytes of states copied")

    def check_states(self, name: str, module) -> None:
        for state in module.STATES:
            got, want = self.answers.ask(f"read s {state}")[state], getattr(module, state).detach().numpy()
            self.failures.check(float(np.abs(got - want).max()) <= 0.01, f"{name}: state {state}")


class Compared:
    """The largest distance of logits so far, as a share of their range."""

    def __init__(self, name: str, failures: Failures) -> None:
        self.name, self.failures, self.worst, self.calls = name, failures, 0.0, 0

    def take(self, got: np.ndarray, want: np.ndarray, at: int) -> None:
        self.worst = max(self.worst, float(np.abs(got - want).max() / np.ptp(want)))
        self.calls += 1
        self.failures.check((got.argmax(-1) == want.argmax(-1)).all(), f"{self.name}: the likeliest token at {at}")

    def end(self) -> None:
        self.failures.check(self.worst <= 2e-3, f"{self.name}: logits differ by {self.worst:.2e} of their range")
        print(f"{self.name}: {self.calls} calls, logits within {self.worst:.1e} of their range, the same bits from text, nothing copied")


def compare_decoder(forms: Forms, folder: pathlib.Path, name: str, module, chunkings: list[list[int]], output: str = "logits") -> None:
    """A package with one function, from ids to logits; or, where the module has no vocabulary, from activations to activations."""
    path = folder / f"{name}.mlpackage"
    decoders.clear(module)
    module.package().save(str(path))
    forms.open(name, path)
    random = np.random.RandomState(5)
    has_ids = hasattr(module, "V")
    text = random.randint(0, module.V, (1, 13)).astype(np.int32) if has_ids else random.randn(1, module.width, 13, 1).astype(np.float32)
    compared = Compared(name, forms.failures)
    for chunks in chunkings:
        forms.states(name)
        decoders.clear(module)
        at = 0
        for tokens in chunks:
            part = text[:, at : at + tokens] if has_ids else text[:, :, at : at + tokens]
            inputs = module.inputs(part, at + tokens)
            with torch.no_grad():
                want = module(*map(torch.from_numpy, inputs.values())).numpy()
            compared.take(forms.call(name, inputs)[output], want, at)
            at += tokens
        forms.check_states(name, module)
    forms.check_copies(name)
    compared.end()


def compare_parts(forms: Forms, folder: pathlib.Path) -> None:
    """Embeddings, chunks of two functions over one state, and a head of two outputs; then all of it as `kvtide coreml run` drives it."""
    model = decoders.Qwen3Folder()
    model.clear()
    model.save(folder / "qwen3")
    parts = ["embeddings", "layers_chunk_01of02", "layers_chunk_02of02", "head"]
    for part in parts:
        forms.open(part, folder / "qwen3" / f"{part}.mlpackage")
    ids = np.random.RandomState(5).randint(0, model.V, (1, 13)).astype(np.int32)
    compared = Compared("qwen3 in four packages", forms.failures)
    for chunks in ([model.BATCH, model.BATCH, 1, 1, 1, 1, 1], [1] * 13):
        forms.states(parts[1])
        model.clear()
        at = 0
        for tokens in chunks:
            part = ids[:, at : at + tokens]
            with torch.no_grad():
                want = model(torch.from_numpy(part), at).numpy()
            x = forms.call(parts[0], {"input_ids": part}, "-")["hidden_states"]
            place = {"position_ids": np.arange(at, at + tokens, dtype=np.int32), "current_pos": np.array([at], np.int32),
                     "causal_mask": decoders.causal(tokens, at + tokens, model.S)}  # fmt: skip
            for chunk in parts[1:3]:
                function = "infer" if tokens == 1 else "prefill"
                x = forms.call(chunk, {"hidden_states": x, **place}, "s", function)["output_hidden_states"]
            rows = [forms.call(parts[3], {"hidden_states": x[:, t : t + 1]}, "-") for t in range(tokens)]
            got = np.concatenate([np.concatenate([row["logits1"], row["logits2"]], -1) for row in rows], 1)
            compared.take(got, want, at)
            at += tokens
        forms.check_states("qwen3", model.chunks[0])
    for part in parts:
        forms.check_copies(part)
    compared.end()


def compare_decoders(forms: Forms, folder: pathlib.Path) -> None:
    torch.manual_seed(3)
    any_sizes = [[5, 1, 3, 1, 1, 1, 1], [1] * 13, [13]]
    compare_decoder(forms, folder, "gpt2", decoders.Gpt2(), any_sizes)
    compare_decoder(forms, folder, "llama-sdpa", decoders.Llama(sdpa=True), any_sizes)
    compare_decoder(forms, folder, "llama-eager", decoders.Llama(sdpa=False), any_sizes)
    compare_parts(forms, folder)
    compare_decoder(forms, folder, "gemma3", decoders.Gemma3(), [[1] * 13])
    compare_decoder(forms, folder, "shard", decoders.Shard(), [[4, 1, 3, 2, 1, 1, 1], [1] * 13, [4, 4, 4, 1]], "hidden")


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
    ("zaya-f16", ["--per-layer"]),
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
        compare_decoders(Forms(answers, arguments.kvtide, failures), pathlib.Path(folder))
        compare_bridge(answers, arguments.kvtide, pathlib.Path(folder), failures)
        compare_weights(answers, pathlib.Path(folder), failures)
        compare_exports(arguments.kvtide, pathlib.Path(folder), failures)
    print(f"{len(failures)} differences" if failures else "Core ML packages agree with PyTorch")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
