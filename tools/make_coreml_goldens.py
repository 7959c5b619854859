"""Packages that coremltools wrote, for the tests of the reader: tests/goldens/coreml.

Needs coremltools 9.0 and torch. Two runs differ in identifiers and dates only, so the goldens are not made again by
`make test-references`, which compares live packages instead.

    python tools/make_coreml_goldens.py tests/goldens/coreml
"""

import pathlib
import sys
import tempfile

import coremltools as ct
import coremltools.optimize.coreml as cto
import numpy as np
import torch


class Cached(torch.nn.Module):
    """A state, a sequence of 1 to 16 tokens, weights of two layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.embedding = torch.nn.Embedding(24, 16)
        self.inner = torch.nn.Linear(16, 32)
        self.head = torch.nn.Linear(32, 24)
        self.register_buffer("kCache", torch.zeros(1, 16, 32))

    def forward(self, ids):
        x = torch.relu(self.inner(self.embedding(ids)))
        self.kCache[:, 0 : ids.shape[1], :] = x
        return self.head(x + self.kCache[:, :1, :])


class Loop(torch.nn.Module):
    """A condition and a loop: blocks in operations."""

    def forward(self, x):
        y = x
        if x.sum() > 0:
            y = x * 2
        while y.sum() < 100:
            y = y + 1
        return y


def cached():
    traced = torch.jit.trace(Cached().eval(), torch.zeros(1, 3, dtype=torch.int32))
    return ct.convert(
        traced,
        inputs=[ct.TensorType("ids", shape=(1, ct.RangeDim(1, 16)), dtype=np.int32)],
        outputs=[ct.TensorType("logits")],
        states=[ct.StateType(ct.TensorType(shape=(1, 16, 32), dtype=np.float16), name="kCache")],
        minimum_deployment_target=ct.target.iOS18,
    )


def linear(inputs, outputs, width, target):
    module = torch.nn.Linear(width, 2 * width).eval()
    return ct.convert(
        torch.jit.trace(module, torch.zeros(1, width)),
        inputs=[ct.TensorType(inputs, shape=(1, width))],
        outputs=[ct.TensorType(outputs)],
        minimum_deployment_target=target,
    )


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = cached()
    with tempfile.TemporaryDirectory() as scratch:
        model.save(f"{scratch}/one.mlpackage")
        functions = ct.utils.MultiFunctionDescriptor()
        for name in ("infer", "prefill"):
            functions.add_function(f"{scratch}/one.mlpackage", "main", name)
        functions.default_function_name = "infer"
        ct.utils.save_multifunction(functions, str(folder / "functions.mlpackage"))
    three = cto.OptimizationConfig(global_config=cto.OpPalettizerConfig(nbits=3, weight_threshold=0))
    cto.palettize_weights(model, three).save(str(folder / "lut3.mlpackage"))
    loop = ct.convert(
        torch.jit.script(Loop().eval()), inputs=[ct.TensorType("x", shape=(4,))], minimum_deployment_target=ct.target.iOS18
    )
    loop.save(str(folder / "loop.mlpackage"))
    first, second = linear("x", "y", 8, ct.target.iOS16), linear("y", "z", 16, ct.target.iOS16)
    ct.utils.make_pipeline(first, second).save(str(folder / "pipeline.mlpackage"))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
