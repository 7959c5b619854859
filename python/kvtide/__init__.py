"""kvtide: language models on a CPU, with a KV memory that can be held, resized and carried.

    import kvtide

    with kvtide.Model.load("model.gguf") as model, model.session() as session:
        for piece in session.generate("Once upon a time", max_tokens=64):
            print(piece, end="", flush=True)

``session.state`` is the live KV memory; ``kvtide.State`` is one of its own, from a snapshot or empty.

``kvtide.state_transition`` grows and shrinks KV states in NumPy arrays and PyTorch tensors; it needs neither a model
nor the native extension, which is why nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kvtide._alias import install_as

if TYPE_CHECKING:
    from kvtide import coreml as coreml
    from kvtide import errors as errors
    from kvtide import serve as serve
    from kvtide import state_transition as state_transition
    from kvtide.batch import Batch as Batch
    from kvtide.batch import Outcome as Outcome
    from kvtide.chat_template import ChatTemplate as ChatTemplate
    from kvtide.errors import Error as Error
    from kvtide.generation import Completion as Completion
    from kvtide.generation import Generation as Generation
    from kvtide.generation import Piece as Piece
    from kvtide.model import Model as Model
    from kvtide.memory import MemoryUse as MemoryUse
    from kvtide.session import Session as Session
    from kvtide.shard import Shard as Shard
    from kvtide.shard import ShardFolder as ShardFolder
    from kvtide.shard import ShardInfo as ShardInfo
    from kvtide.shard import ShardState as ShardState
    from kvtide.state import Layer as Layer
    from kvtide.state import Policy as Policy
    from kvtide.state import State as State
    from kvtide.state import TransitionPlan as TransitionPlan
    from kvtide.state import TransitionRecord as TransitionRecord
    from kvtide.stateful import StatefulModel as StatefulModel
    from kvtide.tokenizer import Tokenizer as Tokenizer
    from kvtide.validation import Report as Report
    from kvtide.validation import validate as validate

__version__ = "0.1.0"

_MODULES = ("coreml", "errors", "serve", "state_transition")
_HOMES = {
    "Batch": "batch",
    "ChatTemplate": "chat_template",
    "Completion": "generation",
    "Error": "errors",
    "Generation": "generation",
    "Layer": "state",
    "MemoryUse": "memory",
    "Model": "model",
    "Outcome": "batch",
    "Piece": "generation",
    "Policy": "state",
    "Report": "validation",
    "Session": "session",
    "Shard": "shard",
    "ShardFolder": "shard",
    "ShardInfo": "shard",
    "ShardState": "shard",
    "State": "state",
    "StatefulModel": "stateful",
    "Tokenizer": "tokenizer",
    "TransitionPlan": "state",
    "TransitionRecord": "state",
    "validate": "validation",
}

__all__ = ["__version__", "install_as", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"kvtide.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"kvtide.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kvtide' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
