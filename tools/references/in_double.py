"""transformers in double precision, so that a reference has no rounding of its own and is the same on every machine.

Models of transformers cast to float32 in places: norms, softmax and the recurrences of delta nets and Mamba-2. Inside
`in_double` these casts are to float64.
"""

import contextlib
import sys
import types

import torch


class _DoubleTorch(types.ModuleType):
    """torch, but its float32 is float64."""

    float32 = float = torch.float64

    def __getattr__(self, name: str):
        return getattr(torch, name)


@contextlib.contextmanager
def in_double(model):
    """Inside, `model` (float32 outside) and what its code casts to are float64. Experts run one by one: torch groups no doubles."""
    modules = [module for name, module in sys.modules.items() if name.startswith("transformers.") and getattr(module, "torch", None) is torch]
    as_float, proxy = torch.Tensor.float, _DoubleTorch("torch")
    experts = getattr(model.config, "_experts_implementation", None)
    for module in modules:
        module.torch = proxy
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    if experts is not None:
        model.config._experts_implementation = "eager"
    try:
        yield model.double()
    finally:
        for module in modules:
            module.torch = torch
        torch.Tensor.float = as_float
        torch.set_default_dtype(torch.float32)
        if experts is not None:
            model.config._experts_implementation = experts
        model.float()
