"""Making the state_transition module importable under the name that an existing script uses."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType


def install_as(name: str = "anemll.utils.state_transition", *, replace: bool = False) -> ModuleType:
    """Makes ``kvtide.state_transition`` importable as ``name``, for this process, and returns it.

        kvtide.install_as("anemll.utils.state_transition")
        from anemll.utils.state_transition import transition_kv_state

    Parent packages that do not exist are made up; those that do are imported and gain the module. A module that
    really exists under the name is never hidden unless ``replace`` is set: ImportError otherwise. A second call
    changes nothing.
    """
    parts = name.split(".") if isinstance(name, str) else []
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"name must be dotted, such as 'anemll.utils.state_transition', not {name!r}")
    if parts[0] == "kvtide":
        raise ValueError(f"'{name}' is within kvtide itself; there is nothing to install")
    module = importlib.import_module("kvtide.state_transition")
    if sys.modules.get(name) is module:
        return module
    if not replace and _exists(name):
        raise ImportError(
            f"'{name}' exists already; install_as(..., replace=True) puts kvtide's module in its place", name=name
        )
    for depth in range(1, len(parts)):
        _parent(".".join(parts[:depth]))
    sys.modules[name] = module
    setattr(sys.modules[name.rpartition(".")[0]], parts[-1], module)
    return module


def _exists(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent is missing, or is not a package
        return False


def _parent(name: str) -> None:
    if _exists(name):
        if not hasattr(importlib.import_module(name), "__path__"):
            raise ImportError(f"'{name}' is not a package, so nothing can be importable from within it", name=name)
        return
    package = ModuleType(name, "Made by kvtide.install_as; holds nothing but what was installed.")
    package.__path__ = []  # what makes it a package
    sys.modules[name] = package
    parent, _, leaf = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, package)
